"""Routes of snapshots: listed, tagged, compared, followed."""
