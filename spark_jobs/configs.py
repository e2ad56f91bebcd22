"""What every Spark session of Keyfold is set to."""

from __future__ import annotations

import os
from collections.abc import Mapping

SESSION_CONFIGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # It takes together the small partitions of what Spark shuffles; without it each shuffle has hundreds of tasks on a
    # server with its own default (docs/decisions/0011). Our own server needs it not (``OWN_SERVER_CONFIGS``).
    "spark.sql.adaptive.enabled": "true",
    # The JVM spends more on compiling whole stages of a query than the query takes (docs/decisions/0011).
    "spark.sql.codegen.wholeStage": "false",
    # Spark lists more than 32 staged batches in a job with a task for each, for what is one look at a file. This many
    # it looks at itself; of more, a few tasks take shares.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "256",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # Ranges side by side are as many tasks. Where each is one partition, Spark 4.1 and later would take their union for
    # one as well: a single task and a single file for the whole table, sorted once more.
    "spark.sql.unionOutputPartitioning": "false",
    # Rows of one range stay in one task, whatever size Spark expects of a join: it multiplies the sizes of both sides,
    # and from 128 MB on it would shuffle, so that a range would be several files that overlap.
    "spark.sql.maxSinglePartitionBytes": str(2**62),
    # Dates before 1582 mean what the ISO calendar says, as in every other reader and writer of the files.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # A sum of DECIMAL(38, s) keeps its scale; otherwise Spark would drop digits after the point to make room.
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    # Names, options and values of users are parts of the SQL that jobs send: nothing in them is looked up or replaced
    # (`${env:…}`), and quotes and backslashes mean what `app.core.rules.spark_sql` takes them to mean.
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    # Paimon tells columns apart by case.
    "spark.sql.caseSensitive": "true",
    # merge_map: of two values of a map key the later one stays, in the earlier one's place.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # The analyzer takes one pass and more for each lambda inside another one; a wide table that replays logs has many.
    "spark.sql.analyzer.maxIterations": "1000",
    # A message that reaches a client of the service must not carry a page of Java.
    "spark.sql.connect.serverStacktrace.enabled": "false",
    # A page that is not what was written fails the job (docs/decisions/0024). What Spark reads was compared with the
    # catalog before, but for what happens to it since.
    "parquet.page.write-checksum.enabled": "true",
    "parquet.page.verify-checksum.enabled": "true",
    # These reach the file committer: Spark copies a session's settings into the Hadoop configuration of its jobs.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # 1: what tasks wrote is moved into the run's folder when the job is done; 2: when the task is. A task that runs
    # twice, because its executor was lost, must not touch what a snapshot names.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}
"""What every session is set to, whichever server it is on: the jobs' results depend on these."""

OWN_SERVER_CONFIGS: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 1))),
    # So few are not to be taken together, and looking at each query again while it runs costs a merge of ten records a
    # quarter of its CPU (docs/decisions/0039).
    "spark.sql.adaptive.enabled": "false",
}
"""What sessions on the embedded server, whose cores are this machine's, are set to besides."""
