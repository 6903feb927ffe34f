"""The command line: `gemmtune …`.

Exit codes, the same for every command:

    0    done
    1    `explain`: the config is illegal; `doctor`: something is broken
    2    the command line itself is wrong (unknown option, missing argument)
    3    bad input: a shape, dtype, layout, arch, config, budget or setting outside its domain
    4    the device, its driver, the compiler, the cache or a recording can't be used
    5    the store can't be opened or written
    6    nothing correct was found, so nothing can be served; no such campaign
    7    the service refused, or doesn't answer
    130  interrupted; the same command resumes
"""

from tuner.cli.app import main

__all__ = ["main"]
