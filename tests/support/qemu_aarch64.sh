#!/bin/bash
# Runs a program for ARM64 in qemu-user: qemu_aarch64.sh PROGRAM ARGUMENT… The preset arm64 names this
# script in CMAKE_CROSSCOMPILING_EMULATOR.
#
# - The program gets one processor, the one that this script runs on. qemu-user 7.2 translates a
#   sequentially consistent store of ARM64 to a plain store of x86-64, which a later load may pass: two
#   threads that each store and then load can both read the old value, which ARM64 forbids. Because of that the deque of
#   engine/pool loses tasks on two processors. On one processor a thread sees its own stores, and a switch to another
#   thread orders all of them.
# - The address space has a bound. qemu-user keeps a record of every page that a program requests. One test requests a
#   stack of 64 TiB and expects a refusal; without the bound the records take all memory.
set -eu
read -ra statistics </proc/self/stat
processor=${statistics[38]}
exec taskset -c "$processor" prlimit --as=17179869184 qemu-aarch64 -L /usr/aarch64-linux-gnu "$@"
