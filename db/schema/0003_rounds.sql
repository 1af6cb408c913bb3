-- Trials that a campaign with rounds adds while it runs.

ALTER TABLE trials ADD COLUMN round INTEGER NOT NULL DEFAULT 1 CHECK (round >= 1);
ALTER TABLE trials ADD COLUMN role TEXT NOT NULL DEFAULT 'compare'
  CHECK (role IN ('compare', 'confirm', 'stack', 'leave_one_out'));
