#!/usr/bin/env python3
"""Checks a Perfetto trace against Perfetto's own schema, and what must hold of any trace:

- the file holds no field that the schema does not know;
- slices of a track are balanced, and time does not go back on it;
- every track that is used was described before, every thread has a name and a number of its own;
- every name and source location that an event refers to was interned, and no packet needs state
  that was lost;
- a thread that runs is one that is described, and a CPU runs one thread at a time.

Usage: check_perfetto.py FILE (needs the packages perfetto and protobuf). Prints what it counted as
one line of JSON; exits with 1 at the first thing that does not hold.
"""

import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

TracePacket = schema.TracePacket
TrackEvent = schema.TrackEvent
TaskState = schema.GenericKernelTaskStateEvent


def demand(truth, message):
    if not truth:
        sys.exit(f"check_perfetto: {message}")


def known(message, path):
    """Demands that all fields in a message are in the schema."""
    unknown = [field.field_number for field in UnknownFieldSet(message)]
    demand(not unknown, f"{path} has unknown fields {unknown}")
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        inner = value if field.is_repeated else [value]
        for part in inner:
            known(part, f"{path}.{field.name}")


class Sequence:
    """What packets of one sequence rely on."""

    def __init__(self):
        self.clock = None
        self.track = None
        self.names = {}
        self.sources = {}


def main(path):
    trace = schema.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())

    sequences, tracks, threads, running = {}, {}, {}, {}
    depth, last, counters = {}, {}, set()
    counted = {"slices": 0, "instants": 0, "counters": 0, "states": 0, "threads": 0}
    for number, packet in enumerate(trace.packet):
        where = f"packet {number}"
        known(packet, where)
        demand(packet.trusted_packet_sequence_id, f"{where} has no sequence")
        key = packet.trusted_packet_sequence_id
        if packet.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            sequences[key] = Sequence()
        elif packet.previous_packet_dropped:
            sequences.pop(key, None)
        sequence = sequences.get(key)

        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            demand(defaults.timestamp_clock_id == 64, f"{where}: default clock")
            sequence.track = defaults.track_event_defaults.track_uuid
        for name in packet.interned_data.event_names:
            sequence.names[name.iid] = name.name
        for source in packet.interned_data.source_locations:
            sequence.sources[source.iid] = source
        for clock in packet.clock_snapshot.clocks:
            if clock.clock_id == 64:
                demand(clock.is_incremental, f"{where}: the clock is not incremental")
                sequence.clock = clock.timestamp
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("thread"):
                name, tid = track.thread.thread_name, track.thread.tid
                demand(threads.get(tid, (track.uuid,))[0] == track.uuid, f"two threads {tid}")
                threads[tid] = (track.uuid, name)
            else:
                name = track.name or track.process.process_name
            demand(name, f"{where}: track {track.uuid} has no name")
            tracks[track.uuid] = name
            if track.HasField("counter"):
                counters.add(track.uuid)

        event = packet.HasField("track_event")
        state = packet.HasField("generic_kernel_task_state_event")
        if not event and not state:
            continue
        demand(sequence is not None, f"{where} needs state that was lost")
        sequence.clock += packet.timestamp
        now = sequence.clock

        if event:
            event = packet.track_event
            uuid = event.track_uuid or sequence.track
            demand(uuid in tracks, f"{where}: track {uuid} was not described")
            demand(now >= last.get(uuid, 0), f"{where}: time goes back on {tracks[uuid]}")
            last[uuid] = now
            if event.type == TrackEvent.TYPE_SLICE_END:
                depth[uuid] = depth.get(uuid, 0) - 1
                demand(depth[uuid] >= 0, f"{where}: an end too many on {tracks[uuid]}")
                continue
            if event.type == TrackEvent.TYPE_COUNTER:
                demand(uuid in counters, f"{where}: {tracks[uuid]} is no counter's track")
                counted["counters"] += 1
                continue
            name = event.name or sequence.names.get(event.name_iid)
            demand(name, f"{where}: the name was not interned")
            if event.source_location_iid:
                source = sequence.sources.get(event.source_location_iid)
                demand(source, f"{where}: the source location was not interned")
                demand(source.file_name and source.function_name == name, f"{where}: {source}")
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                depth[uuid] = depth.get(uuid, 0) + 1
                counted["slices"] += 1
            else:
                demand(event.type == TrackEvent.TYPE_INSTANT, f"{where}: type {event.type}")
                counted["instants"] += 1
        else:
            state = packet.generic_kernel_task_state_event
            demand(state.tid in threads, f"{where}: thread {state.tid} was not described")
            demand(state.comm == threads[state.tid][1], f"{where}: another name, {state.comm}")
            if state.state == TaskState.TASK_STATE_RUNNING:
                running[state.cpu] = state.tid
            elif running.get(state.cpu) == state.tid:
                del running[state.cpu]
            counted["states"] += 1

    for uuid, left in depth.items():
        demand(left == 0, f"{left} slices are left open on {tracks[uuid]}")
    counted["threads"] = len(threads)
    print(json.dumps(counted))


if __name__ == "__main__":
    main(sys.argv[1])
