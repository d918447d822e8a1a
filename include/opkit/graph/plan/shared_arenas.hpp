// SharedArenas: the arenas of one executor, one on each device, as large as the largest request.
// The executor's bound plans share them for all input shapes: runs of one executor never overlap,
// so no two of these plans need the arenas at once.
#ifndef OPKIT_GRAPH_PLAN_SHARED_ARENAS_HPP_
#define OPKIT_GRAPH_PLAN_SHARED_ARENAS_HPP_

#include <vector>

#include "opkit/core/storage.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An executor's arenas, one for each device. They only grow.
class SharedArenas {
 public:
  // True if Take would have to replace an arena by a larger one.
  bool MustGrow(Device device, int64_t bytes) const {
    for (const Arena& arena : arenas_)
      if (arena.device == device) return !arena.storage || arena.storage->nbytes() < bytes;
    return false;
  }
  // Returns the arena of the device, with at least that many bytes; an empty Storage for 0 bytes.
  // Throws the errors of AllocateStorage.
  Storage Take(Device device, int64_t bytes) {
    if (bytes == 0) return {};
    for (Arena& arena : arenas_) {
      if (arena.device != device) continue;
      if (MustGrow(device, bytes)) {
        arena.storage = {};  // frees it before the larger one is made, unless others hold it
        arena.storage = AllocateStorage(device, bytes);
      }
      return arena.storage;
    }
    arenas_.push_back({device, AllocateStorage(device, bytes)});
    return arenas_.back().storage;
  }
  // Gives up the arenas, because a device may still write to them. The next Take makes new ones.
  void Abandon() { arenas_.clear(); }

 private:
  struct Arena {
    Device device;
    Storage storage;
  };
  std::vector<Arena> arenas_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_SHARED_ARENAS_HPP_
