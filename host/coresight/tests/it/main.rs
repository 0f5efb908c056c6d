//! Tests of `kymo-coresight` on captures of real trace units, against the listings of OpenCSD 1.8.0.
//!
//! Difficult parts of each protocol, and the tests that cover them:
//!
//! | protocol | what | tests |
//! |---|---|---|
//! | frames | IDs at once or late, low bits, padding, offsets | `frames::*`, unit tests of `frames` |
//! | | synchronization words of a port, DSTREAM's blocks, resets | `frames::blocks_of_a_probe`, `packets::juno_uname_002_tpiu`, unit tests |
//! | | parts of any size, cut ends | `parts_of_any_size_give_the_same`, `hostile::*` |
//! | ETMv4, ETE | first bytes, variable fields, address history, contexts | `packets::*` against listings, `kinds::each_packet_of_etmv4_and_ete_that_no_capture_has` |
//! | | unsynchronized bytes, trace info, overflow, discard | `packets::*`, `elements::*`, `encoder::etmv4_*` |
//! | | commits, cancels, mispredictions, commits in cycle counts | `elements::ete_spec_*`, `elements::maxspec78_commopt0`, `encoder::etmv4_with_*` |
//! | | exceptions, their addresses and returns | `elements::*`, `encoder::etmv4_*`, `encoder::ete` |
//! | | return stack | `encoder::etmv4_*`, `elements::tc2_ptm_rstk_t32`, `targets::*` |
//! | | Q elements, source addresses, transactions, instrumentation | `elements::{q_elem, src_addr, ete_ip, tme_*, ete_ite_instr}`, `encoder::{q_elements, ete}` |
//! | | contexts of root and realm, code by exception level | `elements::rme_test` |
//! | | conditional instructions | `kinds::conditional_*` |
//! | | waypoints of A64, A32, T32 | `classes::*` against a disassembler, `encoder::instructions_are_classified_as_they_were_encoded` |
//! | | texts of A32 and T32, SIMD without text, aliases of SYS | `texts::*` against binutils |
//! | | wrong opcodes, branches that were not taken | `elements::opcodes_*`, `calls::what_code_and_trace_disagree_on_is_told` |
//! | ETMv3 | P-headers, branches of both encodings, cancelled instructions | `elements::{tc2, r5f_*}`, `encoder::etmv3` |
//! | | data trace, wrong modes | `kinds::data_of_an_etmv3`, `packets::r5f_zephyr` |
//! | PTM | atoms with cycles, waypoint updates, timestamps, IDs | `elements::tc2_ptm_rstk_t32`, `encoder::ptm` |
//! | ETMv3, PTM | kinds without a capture | `kinds::each_packet_of_etmv3_and_ptm_that_no_capture_has` |
//! | ETMv4, PTM, ETMv3 | real code of A64, A32 and T32, walked at random | `encoder::over_real_code::*` |
//! | STM, ITM | nibbles, all packets, whole times | `packets::{stm_*, itm_*}`, `elements::{stm_*, itm_*}`, `kinds::packets_of_an_*` |
//! | memory | spaces, several files at one address, what is missing | `elements::*`, `programs::*`, unit tests of `memory` |
//! | | kernel, modules, vdso, caches, other builds | `files::*`, `perf::a_module_without_symbols_of_the_kernel` |
//! | perf.data | versions, modes, losses | `recordings::*`, `perf::*`, `joined::*` |
//! | all | any bytes, any code, cut or changed files | `hostile::*`, the fuzz targets `coresight_*` |

mod calls;
mod classes;
mod data;
mod elements;
mod encoder;
mod files;
mod frames;
mod goldens;
mod hostile;
mod joined;
mod kinds;
mod misfits;
mod packets;
mod parts;
mod perf;
mod programs;
mod recordings;
mod targets;
#[cfg(feature = "disassembly")]
mod texts;
