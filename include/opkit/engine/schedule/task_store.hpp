// TaskStore: keeps the functions of a task graph. Small trivially copyable functions are kept by
// value, behind a call pointer; the others in blocks that live as long as a graph needs them.
#ifndef OPKIT_ENGINE_SCHEDULE_TASK_STORE_HPP_
#define OPKIT_ENGINE_SCHEDULE_TASK_STORE_HPP_

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "opkit/base/ref_counted.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A call pointer, and the bytes of a function or of a pointer to it.
struct TaskRecord {
  static constexpr size_t kBytes = 24;

  void (*call)(void* bytes) = nullptr;
  alignas(8) unsigned char bytes[kBytes] = {};
};

// Owns the functions that records point to. Filled by one thread.
class TaskStore final : public RefCounted {
 public:
  TaskStore() = default;
  ~TaskStore() override {
    for (size_t i = owned_.size(); i-- > 0;) owned_[i].destroy(owned_[i].object);
    for (const Block& block : blocks_)
      ::operator delete(block.bytes, std::align_val_t{block.alignment});
  }

  // Returns a record of `f`, and in `bytes` how many of its bytes are used.
  template <class F>
  TaskRecord Store(F&& f, int* bytes) {
    using Callable = std::decay_t<F>;
    TaskRecord record;
    if constexpr (std::is_trivially_copyable_v<Callable> &&
                  sizeof(Callable) <= TaskRecord::kBytes && alignof(Callable) <= 8) {
      ::new (static_cast<void*>(record.bytes)) Callable(std::forward<F>(f));
      record.call = [](void* at) { (*std::launder(static_cast<Callable*>(at)))(); };
      *bytes = std::is_empty_v<Callable> ? 0 : static_cast<int>(sizeof(Callable));
    } else {
      if (owned_.size() == owned_.capacity()) owned_.reserve(2 * owned_.size() + 8);
      Callable* object =
          ::new (Allocate(sizeof(Callable), alignof(Callable))) Callable(std::forward<F>(f));
      owned_.push_back({object, [](void* dead) { static_cast<Callable*>(dead)->~Callable(); }});
      std::memcpy(record.bytes, &object, sizeof object);
      record.call = [](void* at) {
        Callable* callable;
        std::memcpy(&callable, at, sizeof callable);
        (*callable)();
      };
      *bytes = sizeof object;
    }
    return record;
  }

 private:
  struct Owned {
    void* object;
    void (*destroy)(void*);
  };
  struct Block {
    void* bytes;
    size_t alignment;
  };

  void* Allocate(size_t size, size_t alignment) {
    constexpr size_t kBlock = size_t{1} << 16;
    if (size > kBlock / 8 || alignment > alignof(std::max_align_t))
      return NewBlock(size, alignment);
    used_ = (used_ + alignment - 1) & ~(alignment - 1);
    if (!current_ || used_ + size > kBlock) {
      current_ = static_cast<unsigned char*>(NewBlock(kBlock, alignof(std::max_align_t)));
      used_ = 0;
    }
    return current_ + std::exchange(used_, used_ + size);
  }
  void* NewBlock(size_t size, size_t alignment) {
    blocks_.push_back({nullptr, alignment});
    return blocks_.back().bytes = ::operator new(size, std::align_val_t{alignment});
  }

  std::vector<Owned> owned_;
  std::vector<Block> blocks_;
  unsigned char* current_ = nullptr;
  size_t used_ = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_ENGINE_SCHEDULE_TASK_STORE_HPP_
