"""lm-eval tasks over the published data sets, their rollouts, records and metrics.

`harness/` holds the task files; `task` and `rollout` are what they name, over `episodes` (pure) and `data`.
`metrics` scores, `records` is the schema of what is written, `samples` makes records. `evaluate` is our own
driver, with `shared_prefix` for speed; `bench` measures. Importing `records`,
`samples`, `episodes` or `metrics` pulls in neither torch nor lm-eval.
"""
