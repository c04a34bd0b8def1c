"""The seam to ZooKeeper: sessions, connections and their thread, credentials and TLS."""
