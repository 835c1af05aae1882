"""Statistics over evaluation records: estimators, crossovers, figures and the report. No model calls."""
