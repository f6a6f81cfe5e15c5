# Waits for a file, then takes all memory that is free, and 60 MiB more.
import os
import time

while not os.path.exists("/tmp/full"):
    time.sleep(0.05)
with open("/proc/meminfo") as facts:
    free = int([line.split()[1] for line in facts if line.startswith("MemFree")][0]) << 10
taken = [b"x" * (1 << 20) for _ in range((free >> 20) + 60)]
print("took it all", flush=True)
open("/tmp/taken", "w").close()
