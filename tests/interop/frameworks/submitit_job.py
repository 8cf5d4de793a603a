"""Submits a command as a job of submitit, and waits for its end. usage: submitit_job.py FOLDER COMMAND..."""
import sys

import submitit

folder, *command = sys.argv[1:]
executor = submitit.AutoExecutor(folder, cluster="local")
executor.update_parameters(timeout_min=10)
print(executor.submit(submitit.helpers.CommandFunction(command)).result())
