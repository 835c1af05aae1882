"""ScienceWorld, the external study: a frozen catalogue of reference paths, views of its states, splits, rows.

Everything but `simulator` and `freeze` works from the frozen catalogue alone, without Java and without the
package scienceworld. Importing this package pulls in neither.
"""
