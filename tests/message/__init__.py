"""Frames, codecs, and messages in the user's hands; without ZooKeeper."""
