// The compiled runtime: the thread pool, schedules and their replays, the dependency engine.
#include "opkit/engine/impl/parallel_for.ipp"
#include "opkit/engine/impl/task_group.ipp"
#include "opkit/engine/impl/thread_pool.ipp"
#include "opkit/engine/pool/impl/latch.ipp"
