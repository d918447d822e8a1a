// Checkpoints: the named tensors of all processes in a folder, written whole or not at all, and
// read back on the same or another number of processes.
#ifndef OPKIT_CLUSTER_CHECKPOINT_HPP_
#define OPKIT_CLUSTER_CHECKPOINT_HPP_

#include <string>
#include <vector>

#include "opkit/cluster/communicator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A tensor of a checkpoint. Without `is_sharded` it has the same elements on each process. A
// sharded tensor has a block of rows (indices of the first axis) on each process, in their order.
struct CheckpointTensor {
  std::string name;
  Tensor tensor;
  bool is_sharded = false;
};

// Writes the tensors of all processes. Every process calls it with tensors of the same names,
// dtypes and shapes, in the same order; a shard may have any number of rows. The folder is made if
// it is missing. It gets one file for each process, "checkpoint.ID.PROCESS", with 16 hexadecimal
// digits that are new for each call, and last the file "checkpoint", which names the others. Each
// file is on the disk under a temporary name before it gets its own. So the checkpoint that the
// folder had stays valid until the new one is complete, after a kill too; then all older files
// of such names are removed, and no others. A replicated tensor is written by one process. The lock
// of the file "checkpoint.lock", which stays, keeps other jobs from saving in the folder meanwhile.
//
//   SaveCheckpoint(*communicator, "state", {{"W", weights}, {"table", rows, true}});
//   for (const CheckpointTensor& each : LoadCheckpoint("state", process, processes)) ...
//
// Throws the same Error on all processes: kInvalidArgument for tensors that differ, kUnsupported
// for a tensor that is not on the CPU, or has strings or packed elements (int4); kIo for a file
// that cannot be written, for a file "checkpoint" that is damaged or of another program, and if
// another job saves in the folder now. The folder then has the checkpoint that it had. A broken
// communicator throws its own Error.
void SaveCheckpoint(Communicator& communicator, const std::string& folder,
                    const std::vector<CheckpointTensor>& tensors);

// Returns the tensors of one of `processes` processes, in the order in which they were saved. They
// are those of one SaveCheckpoint, also if another job saves meanwhile. If the number of processes
// is not that of SaveCheckpoint, each process gets an equal block of the rows of a sharded tensor.
// Throws kNotFound for a folder without a checkpoint, kIo for a file that is missing, too short or
// damaged, kInvalidArgument for rows that cannot be divided equally.
std::vector<CheckpointTensor> LoadCheckpoint(const std::string& folder, int process, int processes);

// Copies the checkpoint's tensors into the elements of those given, which are on the CPU and dense.
// The checkpoint may have others too. Throws kNotFound for a name that it does not have, and
// kTypeMismatch or kInvalidArgument for another dtype, shape or kind, before it changes an element.
void RestoreCheckpoint(const std::string& folder, int process, int processes,
                       const std::vector<CheckpointTensor>& tensors);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/checkpoint.ipp"
#endif

#endif  // OPKIT_CLUSTER_CHECKPOINT_HPP_
