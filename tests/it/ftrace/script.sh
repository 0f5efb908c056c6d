# Script of the guest: makes recordings of every kind, and stores the exit code and the settings of tracefs after each.
T=/sys/kernel/tracing

# Prints all settings that a recording may change.
settings() {
    for name in tracing_on current_tracer tracing_thresh trace_clock buffer_size_kb saved_cmdlines_size \
        set_ftrace_filter set_ftrace_pid set_ftrace_notrace_pid set_event_pid set_event_notrace_pid \
        options/function-fork options/event-fork events/enable; do
        echo "$name $(cat $T/$name | tr '\n' ' ')"
    done
    echo "instances $(ls $T/instances)"
    echo "state $(ls /run/kymo)"
}

# Logs the start of a step with its time.
step() {
    echo "$(cut -d' ' -f1 /proc/uptime) $1" | tee -a times
}

# Runs `kymo record --ftrace` with these options into NAME.dat, and stores its output, exit code and the settings.
record() {
    name=$1
    shift
    step $name
    kymo record --ftrace -o $name.dat "$@" > $name.out 2> $name.err
    echo $? > $name.code
    settings > $name.settings
}

# The same in the background; returns when it records or has ended.
begin() {
    name=$1
    shift
    step $name
    kymo record --ftrace -o $name.dat "$@" > $name.out 2> $name.err &
    PID=$!
    until recording || ! kill -0 $PID 2> /dev/null; do usleep 20000; done
}

recording() {
    grep -q "^note: recording" $name.err || return 1
    case "$(cat $T/current_tracer)" in
        nop) test "$(cat $T/instances/*/tracing_on)" = 1 ;;
        *) test "$(cat $T/tracing_on)" = 1 ;;
    esac
}

# Waits for the end of the recording in the background.
end() {
    wait $PID
    echo $? > $name.code
    settings > $name.settings
}

record unmounted -- true
mount -t tracefs nodev $T

# The trace of the boot is still in the buffer, and another recording would destroy it.
record busy --threshold 100us
record boot --boot
echo nop > $T/current_tracer
echo 0 > $T/events/enable
echo 0 > $T/tracing_thresh
echo > $T/set_ftrace_filter
echo local > $T/trace_clock
echo > $T/trace
settings > before.settings
record empty --boot

record command --threshold 200us -- sh -c 'ls /proc > /dev/null; exit 3'
record functions --function 'vfs_*' --function ksys_read -- dd if=/dev/zero of=/dev/null bs=1 count=500
cp functions.err dd.err
record lost --function 'vfs_*' --buffer 8k -- dd if=/dev/zero of=/dev/null bs=1 count=2000
record events --event sched --event 'syscalls:sys_*_openat' -- sh -c 'cat /proc/version > /dev/null'
record nothing --function no_such_function
record nobody --event sched:no_such_event
record missing -- no-such-program

begin stop --function 'vfs_*' --stop-at do_unlinkat
touch file
rm file
end

begin int --event 'sched:*' --event 'irq:*'
kill -INT $PID
end

begin int-command --event sched -- sleep 1000
kill -INT $PID
end

begin term --tracer function --function 'vfs_*'
kill -TERM $PID
end

begin killed --threshold 200us --function 'vfs_*' --stop-at panic
settings > during.settings
# Waits until a part of the recording is on the disk.
until cat killed.dat.pages/cpu*.raw | grep -q . || ! kill -0 $PID; do cat /proc/version > /dev/null; done
kill -KILL $PID
wait $PID
settings > left.settings
mv killed.dat.pages killed.dat
record after --event sched:sched_switch --duration 100ms

begin killed-instance --event sched
kill -KILL $PID
wait $PID
settings > left-instance.settings

sh -c 'while :; do cat /proc/uptime > /dev/null; done' &
LOOP=$!
record pid --pid $LOOP --event 'syscalls:sys_enter_openat' --duration 300ms
kill $LOOP

# A disk that becomes full during a recording.
mkdir -p /small
mount -t tmpfs -o size=20m nodev /small
step full
kymo record --ftrace -o /small/full.dat --function 'vfs_*' --function ksys_read \
    -- dd if=/dev/zero of=/dev/null bs=1 count=60000 > full.out 2> full.err
echo $? > full.code
settings > full.settings
cp /small/full.dat .
umount /small

mkdir -p /tmp/home /etc
chmod 777 /tmp/home
cd /tmp/home
echo root:x:0:0::/:/bin/sh > /etc/passwd
echo user:x:1000:1000::/:/bin/sh >> /etc/passwd
su user -c 'kymo record --ftrace -- true' > /out/user.out 2> /out/user.err
echo $? > /out/user.code
cd /out
step end
rm -f file
