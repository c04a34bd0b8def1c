"""Tests of zkms_spark, on a local Spark and on a cluster."""
