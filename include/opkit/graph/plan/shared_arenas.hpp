// SharedArenas: the memory between nodes of one executor, for all of its input shapes: on each
// device one arena, as large as the largest that was asked for. Runs of an executor follow each
// other, so that the bound plans of its shapes never need it at once.
#ifndef OPKIT_GRAPH_PLAN_SHARED_ARENAS_HPP_
#define OPKIT_GRAPH_PLAN_SHARED_ARENAS_HPP_

#include <vector>

#include "opkit/core/storage.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class SharedArenas {
 public:
  // Whether Take would have to make a new one in place of one that is there.
  bool MustGrow(Device device, int64_t bytes) const {
    for (const Arena& arena : arenas_)
      if (arena.device == device) return !arena.storage || arena.storage->nbytes() < bytes;
    return false;
  }
  // The arena of the device, with at least that many bytes; none for 0. Errors: as AllocateStorage.
  Storage Take(Device device, int64_t bytes) {
    if (bytes == 0) return {};
    for (Arena& arena : arenas_) {
      if (arena.device != device) continue;
      if (MustGrow(device, bytes)) {
        arena.storage = {};  // freed before the larger one is made, where nobody else has it
        arena.storage = AllocateStorage(device, bytes);
      }
      return arena.storage;
    }
    arenas_.push_back({device, AllocateStorage(device, bytes)});
    return arenas_.back().storage;
  }
  // Gives the arenas up: a device may still write to them. The next Take makes new ones.
  void Abandon() { arenas_.clear(); }

 private:
  struct Arena {
    Device device;
    Storage storage;
  };
  std::vector<Arena> arenas_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_SHARED_ARENAS_HPP_
