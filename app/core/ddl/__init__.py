"""CREATE TABLE read and written in Flink's and Spark's SQL."""
