"""lm-eval tasks over the published data sets, their rollouts, records and metrics.

`harness/` holds the task files; `task` and `rollout` are what they name; `metrics` scores; `records` is the
schema of what is written; `evaluate` is our own driver and `bench` measures lock step. Importing `records`,
`samples`, `episodes` or `metrics` pulls in neither torch nor lm-eval.
"""
