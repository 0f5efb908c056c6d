//! Recordings and captures of every format, read as events.

mod any_input;
mod babeltrace;
mod clocks;
mod coresight;
mod ctf;
mod damage;
mod dumps;
mod exits;
mod ftrace;
mod ftrace_depths;
mod ftrace_text;
mod inputs;
mod items;
mod live;
mod lttng;
mod mapping;
mod native;
mod recorder;
mod rows;
mod rtems_record;
mod systemview;
mod unfinished;
mod zephyr;
mod zephyr_damage;
mod zephyr_dumps;
mod zephyr_tracing;
