#!/usr/bin/env python3
"""Times the all-reduces of PyTorch's symmetric memory as `demo bench` times ours, for `demo bench --beside FILE`.

One process for each rank, each rank on a GPU of its own; bf16; so many calls in a captured graph, all ranks released
together by a barrier on the devices; a time is that of the slowest rank. Results are checked against sums of distinct
payloads of whole numbers, which are exact in any order.

  torch-oneshot       one_shot_all_reduce_out: the input lies in symmetric memory, as a registered one of ours does
  torch-oneshot-copy  one_shot_all_reduce_copy_out: the input lies anywhere, and the kernel copies it first
  torch-twoshot       two_shot_all_reduce_out; in place two_shot_all_reduce_: the input lies in symmetric memory

--out FILE gets a line of JSON about the run, then one for each size and operation, in the fields of `demo bench --json`.
Multicast is never used: the variables that turn it off are set here, and where PyTorch would use it all the same, nothing
is allocated. Exit status: 0 all right, or skipped since there are fewer than two GPUs; 1 a wrong result, or it could not
run; 2 usage. It ends within --timeout, and its processes with it.
"""

import argparse
import ctypes
import datetime
import hashlib
import json
import math
import multiprocessing
import os
import queue
import signal
import sys
import time
import traceback

# Before torch is loaded, here and in every child, whatever the environment says.
OFF = {
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_SYMMMEM": "CUDA",
    "GLOO_SOCKET_IFNAME": "lo",
}
os.environ.update(OFF)

CLOCK = "device events around a captured graph, divided by its calls, all ranks begun together; slowest rank, median of replays"
NAMES = ("torch-oneshot", "torch-oneshot-copy", "torch-twoshot")
HALVES = ("out_of_place", "in_place")
MOST_HOLD = 100_000_000  # cycles


def bytes_of(text):
    t = text.strip().upper()
    shift = {"K": 10, "M": 20, "G": 30}.get(t[-1:], 0)
    try:
        n = int(t[:-1] if shift else t) << shift
    except ValueError:
        n = 0
    if n < 16 or n % 16 or n > 1 << 30:
        raise argparse.ArgumentTypeError(f"{text!r}: use a multiple of 16 bytes up to 1G, such as 8K")
    return n


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", default="2,4,8", help="world sizes; those above the number of GPUs are left out (default 2,4,8)")
    p.add_argument("-b", "--minbytes", type=bytes_of, default="1K")
    p.add_argument("-e", "--maxbytes", type=bytes_of, default="1M")
    p.add_argument("-f", "--stepfactor", type=int, default=2)
    p.add_argument("-n", "--iters", type=int, default=200, help="calls in a graph (default 200)")
    p.add_argument("-w", "--warmup", type=int, default=1, help="replays ahead of those that are timed (default 1)")
    p.add_argument("--replays", type=int, default=10, help="timed replays in a round (default 10)")
    p.add_argument("--rounds", type=int, default=3, help="rounds over the operations for each size (default 3)")
    p.add_argument("--seed", type=int, default=1, help="seed of the payloads")
    p.add_argument("--process-group", default="gloo", choices=("gloo", "nccl"), help="by what the processes find each other (default gloo)")
    p.add_argument("--timeout", type=float, default=300, help="seconds for all of it (default 300)")
    p.add_argument("--out", help="the file of the JSON lines (default: none, only the table is printed)")
    a = p.parse_args()
    try:
        a.worlds = sorted({int(w) for w in a.ranks.split(",")})
    except ValueError:
        a.worlds = [0]
    if a.worlds[0] < 2 or a.worlds[-1] > 16:
        p.error(f"--ranks {a.ranks}: use numbers from 2 to 16, such as 2,4,8")
    if a.stepfactor < 2 or min(a.iters, a.replays, a.rounds) < 1 or a.warmup < 0:
        p.error("a factor is 2 or more, a number of repetitions 1 or more")
    if not 0 < a.timeout <= 86400:  # nan is neither
        p.error(f"--timeout {a.timeout:g}: use seconds, more than 0 and up to a day")
    if a.minbytes > a.maxbytes:
        p.error("--minbytes is above --maxbytes")
    a.sizes = [a.minbytes]
    while a.sizes[-1] * a.stepfactor <= a.maxbytes:
        a.sizes.append(a.sizes[-1] * a.stepfactor)
    return a


# A rank, in a process of its own.


def rank_main(rank, world, port, args, answers):
    """Measures with the other ranks. answers gets ("row", rank, row), at the end ("done", rank), or ("error", rank, text)."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not to spin on a GPU when the parent is gone
        Rank(rank, world, port, args).all(lambda row: answers.put(("row", rank, row)))
        answers.put(("done", rank))
    except BaseException:
        answers.put(("error", rank, traceback.format_exc(limit=4)))
    answers.close()
    answers.join_thread()
    os._exit(0)  # what is left to take down would wait for ranks that may be gone


class Rank:
    def __init__(self, rank, world, port, args):
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem

        self.torch, self.rank, self.world, self.args = torch, rank, world, args
        torch.cuda.set_device(rank)
        self.device = torch.device("cuda", rank)
        refuse_multicast(rank)
        limit = datetime.timedelta(seconds=args.timeout)
        self.store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=limit, wait_for_workers=False)
        dist.init_process_group(args.process_group, store=dist.PrefixStore("group", self.store), rank=rank, world_size=world, timeout=limit)
        self.group = dist.group.WORLD.group_name
        self.meetings = 0
        count = args.sizes[-1] // 2
        self.symm = symm_mem.empty(count, dtype=torch.bfloat16, device=self.device)
        self.gate = symm_mem.empty(1024, dtype=torch.uint8, device=self.device)  # its barrier has flags of its own
        for buffer in (self.symm, self.gate):
            handle = symm_mem.rendezvous(buffer, self.group)
            if handle.multicast_ptr:
                raise RuntimeError("PyTorch made a multicast object although it was told not to")
        self.barrier = handle.barrier
        self.local = torch.empty(count, dtype=torch.bfloat16, device=self.device)
        self.out = torch.empty(count, dtype=torch.bfloat16, device=self.device)
        self.stream = torch.cuda.Stream(device=self.device)
        self.hold = 600_000  # cycles of the pause behind which a replay is queued

    def all(self, answer):
        for size in self.args.sizes:
            cells = [(name, half, call) for name in NAMES for half in HALVES if (call := self.call(name, half, size // 2))]
            rows = {(name, half): {"name": name, "half": half, "bytes": size, "times": [], "early": []} for name, half, _ in cells}
            for _ in range(self.args.rounds):
                for name, half, call in cells:
                    row = rows[name, half]
                    if "refused" in row:
                        continue
                    try:
                        self.times(call, size // 2, row)
                    except RuntimeError as e:  # of the operation itself, so on all ranks: a world size that it doesn't know
                        if "Not implemented" not in str(e):
                            raise
                        row["refused"] = str(e).splitlines()[0]
            for name, half, call in cells:
                if "refused" not in rows[name, half]:
                    self.check(call, name, half, size // 2, rows[name, half])
            for row in rows.values():
                answer(row)

    def call(self, name, half, count):
        """One call, and where its input and its output are; None where there is no such operation."""
        ops, symm, local, out, group = self.torch.ops.symm_mem, self.symm[:count], self.local[:count], self.out[:count], self.group
        if name == "torch-oneshot":
            if half == "in_place":  # peers would read what is being written
                return None
            return (lambda: ops.one_shot_all_reduce_out(symm, "sum", group, out)), symm, out
        if name == "torch-oneshot-copy":
            if half == "in_place":
                return (lambda: ops.one_shot_all_reduce_copy_out(symm, out, "sum", group, out)), out, out
            return (lambda: ops.one_shot_all_reduce_copy_out(symm, local, "sum", group, out)), local, out
        if half == "in_place":
            return (lambda: ops.two_shot_all_reduce_(symm, "sum", group)), symm, symm
        return (lambda: ops.two_shot_all_reduce_out(symm, "sum", group, out)), symm, out

    def payload(self, rank, count, seed):
        """Whole numbers from -8 to 8: sums of 16 of them are exact in bf16, in any order."""
        torch = self.torch
        g = torch.Generator().manual_seed(1_000_003 * seed + 1009 * rank + count)
        return torch.randint(-8, 9, (count,), generator=g).to(torch.bfloat16)

    def meet(self):
        """All ranks come here before any goes on."""
        self.meetings += 1
        key = f"meet/{self.meetings}"
        if self.store.add(key, 1) == self.world:
            self.store.set(key + "/go", "1")
        self.store.wait([key + "/go"])

    def times(self, call, count, row):
        torch, a = self.torch, self.args
        run, into, _ = call
        with torch.cuda.stream(self.stream):
            into.copy_(self.payload(self.rank, count, a.seed))
            self.stream.synchronize()
            self.meet()
            run()  # ahead of the capture: what is set up by a first call
            self.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            for _ in range(a.iters):
                run()
        with torch.cuda.stream(self.stream):
            for i in range(a.warmup + a.replays):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                self.meet()
                torch.cuda._sleep(self.hold)
                self.barrier(channel=0)
                start.record()
                graph.replay()
                end.record()
                early = start.query()  # it began before all was queued: the host's time may be in it
                self.stream.synchronize()
                if early:
                    self.hold = min(2 * self.hold, MOST_HOLD)
                if i >= a.warmup:
                    row["times"].append(start.elapsed_time(end) * 1000 / a.iters)
                    row["early"].append(early)
        graph.reset()

    def check(self, call, name, half, count, row):
        """Two calls with new payloads, into poisoned outputs."""
        torch = self.torch
        run, into, out = call
        row["wrong"], row["first"], digest = 0, "", hashlib.sha256()
        for seed in (self.args.seed + 1, self.args.seed + 2):
            inputs = [self.payload(r, count, seed) for r in range(self.world)]
            want = torch.stack([x.float() for x in inputs]).sum(0).to(torch.bfloat16)
            with torch.cuda.stream(self.stream):
                out.fill_(float("nan"))
                into.copy_(inputs[self.rank])
                self.stream.synchronize()
                self.meet()
                run()
                self.stream.synchronize()
            got = out.cpu()
            bad = (got != want).nonzero().flatten()  # a NaN is not equal to anything
            row["wrong"] += bad.numel()
            if bad.numel() and not row["first"]:
                i = int(bad[0])
                row["first"] = f"rank {self.rank}: element {i} is {float(got[i])}, the reference has {float(want[i])}"
            digest.update(got.view(torch.int16).numpy().tobytes())
        row["digest"] = digest.hexdigest()


def refuse_multicast(device):
    from torch._C._autograd import DeviceType
    from torch._C._distributed_c10d import _SymmetricMemory

    if _SymmetricMemory.has_multicast_support(DeviceType.CUDA, device):
        raise RuntimeError("PyTorch would use multicast although TORCH_SYMM_MEM_DISABLE_MULTICAST is 1: nothing is measured")


# The parent.


def percentile(times, q):
    return times[max(0, math.ceil(q * len(times)) - 1)] if times else 0.0


def half_of(world, size, calls, rows):
    """The fields of one side of a row, from what all ranks say; of none, that nothing was measured."""
    half = {"calls": 0, "samples": 0, "time_us": 0.0, "p10_us": 0.0, "p50_us": 0.0, "p90_us": 0.0, "p99_us": 0.0,
            "algbw": 0.0, "busbw": 0.0, "wrong": 0, "stray_bytes": 0, "ranks_equal": True}  # fmt: skip
    if not rows:
        return half, 0
    slowest = [max(t) for t in zip(*(r["times"] for r in rows))]
    early = [any(e) for e in zip(*(r["early"] for r in rows))]
    times = sorted(t for t, e in zip(slowest, early) if not e)
    if not times:
        raise RuntimeError(f"{size} bytes: in no replay all ranks were queued in time")
    for key, q in (("p10_us", 0.1), ("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99)):
        half[key] = percentile(times, q)
    half["calls"], half["samples"], half["time_us"] = calls, len(times), half["p50_us"]
    half["algbw"] = size / half["time_us"] / 1000
    half["busbw"] = half["algbw"] * 2 * (world - 1) / world
    half["wrong"] = sum(r["wrong"] for r in rows)
    half["ranks_equal"] = len({r["digest"] for r in rows}) == 1
    first = next((r["first"] for r in rows if r["first"]), "")
    if first:
        half["first"] = first
    return half, sum(early)


class Report:
    """Writes the lines as they come, and a table."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8") if path else None
        self.bad = 0

    def line(self, **fields):
        if self.file:
            self.file.write(json.dumps(fields) + "\n")
            self.file.flush()

    def note(self, kind, text):
        print(f"{kind}: {text}", flush=True)
        self.line(**{kind: text})

    def size(self, args, world, size, rows):
        """rows: of all ranks, by name and half."""
        for name in NAMES:
            halves = {}
            for half in HALVES:
                mine = rows.get((name, half), [])
                if mine and "refused" in mine[0]:
                    self.note("skipped", f"{name}, {half}, {world} ranks: {mine[0]['refused']}")
                    mine = []
                halves[half], early = half_of(world, size, args.iters, mine)
                if early:
                    self.note("note", f"{name}, {half}, {world} ranks, {size} bytes: {early} replay(s) thrown away, begun before all was queued")
            if not any(h["samples"] for h in halves.values()):
                continue
            self.line(ranks=world, name=name, bytes=size, count=size // 2, dtype="bf16", redop="sum", **halves)
            cells = "".join(f" | {h['time_us']:8.2f} {h['busbw']:8.2f} {h['wrong']:6d}" if h["samples"] else f" | {'-':>8} {'-':>8} {'-':>6}" for h in halves.values())
            print(f"{world:5d} {size:9d} {name:>20}{cells}", flush=True)
            for h in halves.values():
                if h["wrong"] or not h["ranks_equal"]:
                    self.bad += 1
                    print(f"{name}: wrong: {h.get('first', 'ranks differ')}", flush=True)


def measure(args, world, report, deadline):
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    ranks = [spawn.Process(target=rank_main, args=(r, world, store.port, args, answers), daemon=True) for r in range(world)]
    try:
        for r in ranks:
            r.start()
        rows, done = {}, set()
        while len(done) < world:
            left = deadline - time.monotonic()
            if left <= 0:
                raise RuntimeError(f"{world} ranks: not done within the {args.timeout:g} s of --timeout")
            try:
                what = answers.get(timeout=min(left, 0.5))
            except queue.Empty:
                gone = [i for i, r in enumerate(ranks) if r.exitcode is not None and i not in done]
                if gone and answers.empty():
                    raise RuntimeError(f"{world} ranks: the process of rank {gone[0]} ended with {ranks[gone[0]].exitcode}") from None
                continue
            if what[0] == "error":
                raise RuntimeError(f"{world} ranks: rank {what[1]}: {what[2].strip()}")
            if what[0] == "done":
                done.add(what[1])
                continue
            row = what[2]
            of = rows.setdefault(row["bytes"], {})
            of.setdefault((row["name"], row["half"]), []).append(row)
            expected = sum(1 for n in NAMES for h in HALVES if (n, h) != ("torch-oneshot", "in_place"))
            if len(of) == expected and all(len(mine) == world for mine in of.values()):
                report.size(args, world, row["bytes"], rows.pop(row["bytes"]))
    finally:
        for r in ranks:
            if r.exitcode is None and r.pid:
                r.kill()
        for r in ranks:
            if r.pid:
                r.join(10)


def driver():
    try:
        with open("/sys/module/nvidia/version", encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return ""


def main():
    args = arguments()
    deadline = time.monotonic() + args.timeout
    try:
        report = Report(args.out)
    except OSError as e:
        print(f"--out {args.out}: {e.strerror}: name a file that can be written", file=sys.stderr)
        return 2
    try:
        import torch
    except ImportError as e:
        report.note("error", f"no PyTorch here: {e}")
        return 1
    gpus = torch.cuda.device_count()
    report.line(kind="fenceline-beside", version=1, library=f"PyTorch {torch.__version__}, symmetric memory without multicast",
                devices=[torch.cuda.get_device_name(i) for i in range(gpus)], driver=driver(), clock=CLOCK,
                iters=args.iters, warmup=args.warmup, replays=args.replays, rounds=args.rounds)  # fmt: skip
    if gpus < 2:
        report.note("skipped", f"PyTorch's symmetric memory needs a GPU for each rank, at least 2: here are {gpus}")
        return 0
    try:
        import torch.distributed._symmetric_memory  # noqa: F401

        for op in ("one_shot_all_reduce_out", "one_shot_all_reduce_copy_out", "two_shot_all_reduce_out", "two_shot_all_reduce_"):
            getattr(torch.ops.symm_mem, op)
    except (ImportError, AttributeError) as e:
        report.note("error", f"PyTorch {torch.__version__} has no symmetric memory, or not these operations: {e}")
        return 1
    print(f"PyTorch {torch.__version__}, symmetric memory without multicast, bf16. Time: {CLOCK}.")
    print(f"{'':36} | {'out of place':^24} | {'in place':^24}")
    print(f"{'ranks':>5} {'bytes':>9} {'operation':>20}" + 2 * f" | {'time us':>8} {'busbw':>8} {'#wrong':>6}")
    for world in args.worlds:
        if world > gpus:
            report.note("skipped", f"{world} ranks: more than the {gpus} GPUs here")
            continue
        try:
            measure(args, world, report, deadline)
        except RuntimeError as e:
            report.note("error", str(e))
            return 1
    print("PASS" if report.bad == 0 else f"FAIL: {report.bad} wrong")
    return 1 if report.bad else 0


if __name__ == "__main__":
    sys.exit(main())
