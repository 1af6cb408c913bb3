-- Campaigns, their trials, the attempts at them and what was measured.
-- Times are milliseconds since the epoch, UTC. A measured row is never updated.

CREATE TABLE campaigns (
  campaign_id     TEXT NOT NULL PRIMARY KEY,
  submission_id   TEXT NOT NULL UNIQUE,
  name            TEXT NOT NULL,
  state           TEXT NOT NULL
                  CHECK (state IN ('running', 'done', 'cancelled', 'out_of_budget',
                                   'baseline_failed')),
  reason          TEXT NOT NULL DEFAULT '',
  campaign_json   TEXT NOT NULL,
  source_yaml     TEXT NOT NULL,
  source_name     TEXT NOT NULL,
  machine_json    TEXT,               -- As detected at the first lease; NULL before it.
  created_at_ms   INTEGER NOT NULL,
  resumed_at_ms   INTEGER NOT NULL,   -- The last start or resume: lost attempts count from here.
  wall_from_ms    INTEGER NOT NULL,   -- budget.wall counts from here; shifted by down time.
  ended_at_ms     INTEGER
) STRICT;

CREATE TABLE trials (
  campaign_id     TEXT NOT NULL REFERENCES campaigns (campaign_id),
  trial_id        TEXT NOT NULL,
  trial_index     INTEGER NOT NULL,   -- Order of ExpandTrials().
  intervention_id TEXT NOT NULL,
  choice          TEXT NOT NULL,
  point_index     INTEGER NOT NULL,
  baseline_text   TEXT NOT NULL,      -- Canonical texts.
  variant_text    TEXT NOT NULL,
  settled         TEXT CHECK (settled IN ('measured', 'predicted', 'pruned', 'unsupported',
                                          'infeasible', 'invalid', 'failed', 'not_run')),
  settled_reason  TEXT NOT NULL,
  state           TEXT NOT NULL
                  CHECK (state IN ('pending', 'running', 'done', 'failed', 'lost_out',
                                   'cancelled')),
  reason          TEXT NOT NULL DEFAULT '',
  failure_kind    TEXT CHECK (failure_kind IN ('unsupported', 'infeasible', 'wrong_result',
                                               'impossible', 'crashed', 'timeout', 'out_of_memory',
                                               'device_fault', 'rank_lost', 'internal')),
  failure_message TEXT,
  failure_rank    INTEGER,
  converged       INTEGER NOT NULL DEFAULT 0 CHECK (converged IN (0, 1)),
  PRIMARY KEY (campaign_id, trial_id),
  UNIQUE (campaign_id, trial_index)
) STRICT;

CREATE TABLE attempts (
  attempt_index   INTEGER NOT NULL PRIMARY KEY,  -- Order of lease.
  attempt_id      TEXT NOT NULL UNIQUE,
  campaign_id     TEXT NOT NULL,
  trial_id        TEXT NOT NULL,
  launch          INTEGER NOT NULL,
  launch_key      TEXT NOT NULL,
  state           TEXT NOT NULL
                  CHECK (state IN ('leased', 'running', 'done', 'failed', 'lost', 'refused')),
  authoritative   INTEGER NOT NULL DEFAULT 0 CHECK (authoritative IN (0, 1)),
  worker_ids      TEXT NOT NULL,      -- A JSON array, rank 0 first.
  deadline_ms     INTEGER NOT NULL,   -- From its start.
  leased_at_ms    INTEGER NOT NULL,
  started_at_ms   INTEGER,
  ended_at_ms     INTEGER,
  outcome         TEXT NOT NULL DEFAULT '',
  FOREIGN KEY (campaign_id, trial_id) REFERENCES trials (campaign_id, trial_id)
) STRICT;

CREATE INDEX attempts_by_trial ON attempts (campaign_id, trial_id, launch);

-- One accepted attempt per trial and launch, whatever the code above believes.
CREATE UNIQUE INDEX one_accepted_attempt ON attempts (campaign_id, trial_id, launch)
  WHERE authoritative = 1;

-- A report: at most one per attempt, also a late one.
CREATE TABLE results (
  attempt_id         TEXT NOT NULL PRIMARY KEY REFERENCES attempts (attempt_id),
  reported_at_ms     INTEGER NOT NULL,
  failure_kind       TEXT CHECK (failure_kind IN ('unsupported', 'infeasible', 'wrong_result',
                                                  'impossible', 'crashed', 'timeout',
                                                  'out_of_memory', 'device_fault', 'rank_lost',
                                                  'internal')),
  failure_message    TEXT,
  failure_rank       INTEGER,
  breakdown_method   TEXT NOT NULL,
  breakdown_step_us  REAL NOT NULL,
  effective_baseline TEXT NOT NULL,
  effective_variant  TEXT NOT NULL,
  effective_note     TEXT NOT NULL,
  fidelity           TEXT NOT NULL CHECK (fidelity IN ('full', 'shard', 'predicted')),
  warm               INTEGER NOT NULL CHECK (warm IN (0, 1)),
  data_seed          INTEGER NOT NULL,  -- Unsigned, stored as the signed number of equal bits.
  data_checksum      TEXT NOT NULL,
  sampling_s         REAL NOT NULL,
  setup_s            REAL NOT NULL,
  capture_us         REAL NOT NULL,
  environment        TEXT NOT NULL,     -- A JSON object.
  warnings           TEXT NOT NULL      -- A JSON array.
) STRICT;

CREATE TABLE samples (
  attempt_id       TEXT NOT NULL REFERENCES results (attempt_id),
  sample_index     INTEGER NOT NULL,
  launch           INTEGER NOT NULL,
  draw             INTEGER NOT NULL,
  baseline_us      REAL NOT NULL,
  variant_us       REAL NOT NULL,
  variant_first    INTEGER NOT NULL CHECK (variant_first IN (0, 1)),
  throttled        INTEGER NOT NULL CHECK (throttled IN (0, 1)),
  baseline_wait_us REAL NOT NULL,
  variant_wait_us  REAL NOT NULL,
  unique_experts   REAL NOT NULL,
  imbalance        REAL NOT NULL,
  PRIMARY KEY (attempt_id, sample_index)
) STRICT, WITHOUT ROWID;

CREATE TABLE checks (
  attempt_id        TEXT NOT NULL REFERENCES results (attempt_id),
  moment            TEXT NOT NULL CHECK (moment IN ('before', 'after')),
  ok                INTEGER NOT NULL CHECK (ok IN (0, 1)),
  max_error         REAL NOT NULL,
  tolerance         REAL NOT NULL,
  error_to_baseline REAL NOT NULL,
  changed_routes    REAL NOT NULL,
  detail            TEXT NOT NULL,
  PRIMARY KEY (attempt_id, moment)
) STRICT, WITHOUT ROWID;

CREATE TABLE breakdown (
  attempt_id  TEXT NOT NULL REFERENCES results (attempt_id),
  entry_index INTEGER NOT NULL,
  category    TEXT NOT NULL
              CHECK (category IN ('embedding', 'norm', 'dense', 'attention', 'router', 'moe',
                                  'dequant', 'collective', 'lm_head', 'sampling', 'host',
                                  'other')),
  op          TEXT NOT NULL,
  us          REAL NOT NULL,
  count       INTEGER NOT NULL,
  floor_us    REAL NOT NULL,
  PRIMARY KEY (attempt_id, entry_index)
) STRICT, WITHOUT ROWID;
