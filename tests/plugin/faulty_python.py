"""A plugin that does what it must not, by its file's name: faulty_NAME.py is this file."""

import os
import signal
import time

fault = os.path.basename(__file__)[len("faulty_") : -len(".py")]
title = "faulty " + fault

if fault == "import":
    import no_such_module_anywhere  # noqa: F401
if fault == "exit":
    os._exit(7)


def query(problem):
    if fault == "refuse":
        raise NotImplementedError(f"hidden_size={problem.hidden_size}: only 7168 is built")


if fault != "no_run":

    def run(state, weights, call):
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "hang":
            time.sleep(3600)
        if fault == "raise":
            raise ValueError("out of luck")
        # "idle" writes nothing.
