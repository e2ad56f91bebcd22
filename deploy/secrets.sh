#!/bin/sh
# Makes .env and spark-defaults.conf next to compose.yaml, once: passwords, and what else only this user may read.
set -eu
umask 077
cd "$(dirname "$0")"
if [ -e .env ] || [ -e spark-defaults.conf ]; then
	echo "there are secrets already: remove .env and spark-defaults.conf for new ones" >&2
	exit 1
fi
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
token=$(random)
cat >.env <<END
POSTGRES_PASSWORD=$(random)
GRAFANA_PASSWORD=$(random)
SPARK_TOKEN=$token
END
cat >spark-defaults.conf <<END
spark.authenticate true
spark.authenticate.secret $(random)
spark.connect.authenticate.token $token
END
# Spark's containers read it as the user 10001: a secret that is a file of this machine keeps its owner.
if [ "$(id -u)" = 0 ]; then
	chown 10001 spark-defaults.conf
else
	echo "now: sudo chown 10001 $PWD/spark-defaults.conf"
fi
