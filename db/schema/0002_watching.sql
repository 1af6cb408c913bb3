-- What watchers and operators read: events with sequence numbers, workers, log lines.

CREATE TABLE events (
  sequence        INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  campaign_id     TEXT NOT NULL REFERENCES campaigns (campaign_id),
  at_ms           INTEGER NOT NULL,
  kind            TEXT NOT NULL CHECK (kind IN ('campaign', 'trial', 'attempt')),
  trial_id        TEXT NOT NULL,
  intervention_id TEXT NOT NULL,
  state           TEXT NOT NULL,
  message         TEXT NOT NULL,
  current         TEXT NOT NULL,
  best            TEXT NOT NULL,
  seconds_left    REAL NOT NULL,
  -- The campaign as it was after the event.
  campaign_state  TEXT NOT NULL,
  num_trials      INTEGER NOT NULL,
  num_done        INTEGER NOT NULL,
  num_failed      INTEGER NOT NULL,
  num_running     INTEGER NOT NULL,
  num_pending     INTEGER NOT NULL,
  num_cancelled   INTEGER NOT NULL,
  num_lost_out    INTEGER NOT NULL
) STRICT;

CREATE INDEX events_by_campaign ON events (campaign_id, sequence);

CREATE TABLE workers (
  worker_id       TEXT NOT NULL PRIMARY KEY,
  device          TEXT NOT NULL,
  device_uuid     TEXT NOT NULL,
  host_id         TEXT NOT NULL,
  host_name       TEXT NOT NULL,
  pid             INTEGER NOT NULL,
  build_hash      TEXT NOT NULL,
  machine_json    TEXT NOT NULL,
  state           TEXT NOT NULL CHECK (state IN ('idle', 'busy', 'lost', 'quarantined')),
  reason          TEXT NOT NULL,
  last_seen_at_ms INTEGER NOT NULL,
  num_done        INTEGER NOT NULL,
  num_failed      INTEGER NOT NULL
) STRICT;

CREATE TABLE logs (
  log_index INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  at_ms     INTEGER NOT NULL,
  source    TEXT NOT NULL,            -- A worker id or "coordinator".
  severity  TEXT NOT NULL CHECK (severity IN ('info', 'warning', 'error')),
  line      TEXT NOT NULL
) STRICT;

CREATE INDEX logs_by_source ON logs (source, log_index);
