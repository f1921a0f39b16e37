"""`make bench`: speed as ratios within one run, against what the same machine does without us."""
