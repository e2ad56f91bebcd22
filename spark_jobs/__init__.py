"""The Spark jobs: sessions, expressions, merge and compaction; they see only app.core."""
