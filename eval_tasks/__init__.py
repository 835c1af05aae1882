"""lm-eval tasks over the published data sets, their rollouts, records and metrics.

`harness/` holds the task files, which `suite` writes from the declarations; `task` and `rollout` are what
they name, over `episodes` (pure) and `data`. `metrics` scores, `records` is the schema of what is written,
`samples` makes records, `journal` writes them so that nothing is lost, `regrade` scores them again, and
`sharing` makes a data set of them. `replay` plays records again, for `viewer`, the page of episodes, and
`traces`, the Hub's session format. `evaluate` is our own driver, with `shared_prefix` for speed; `servers`
minds replies that are no answers; `bench` measures. Importing `records`, `samples`, `journal`, `regrade`,
`episodes`, `metrics`, `replay`, `viewer` or `traces` pulls in neither torch nor lm-eval.
"""
