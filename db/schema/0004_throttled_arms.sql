-- Which arm of a throttled pair it was. Both 0 beside throttled = 1: stored before this was known.

ALTER TABLE samples ADD COLUMN baseline_throttled INTEGER NOT NULL DEFAULT 0
  CHECK (baseline_throttled IN (0, 1));
ALTER TABLE samples ADD COLUMN variant_throttled INTEGER NOT NULL DEFAULT 0
  CHECK (variant_throttled IN (0, 1));
