"""The audit: each guarantee held against the trail. Read `audit` first."""
