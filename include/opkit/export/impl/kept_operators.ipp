// The definitions of kept_operators.hpp.
#ifndef OPKIT_EXPORT_IMPL_KEPT_OPERATORS_IPP_
#define OPKIT_EXPORT_IMPL_KEPT_OPERATORS_IPP_

#include "opkit/export/kept_operators.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void CallKey::AddLong(const void* bytes, size_t count) {
  if (long_.empty()) long_.assign(inline_, size_);
  long_.append(static_cast<const char*>(bytes), count);
}

// The operators that one thread keeps.
class OPKIT_IMAGE_LOCAL KeptTable {
 public:
  static KeptTable& OfThread() {
    thread_local KeptTable table;
    return table;
  }

  // Returns null if there is none, or if a call of it runs.
  ReadyOperator* Find(const ExportedOperator& op, std::string_view key) {
    for (Row& row : rows_) {
      if (row.op != &op || row.key != key) continue;
      if (row.busy) return nullptr;
      return Begin(row);
    }
    return nullptr;
  }
  // Keeps the operator and begins a call of it. Without room returns null and leaves `ready` to
  // the caller: every row is in a call, or a call of an equal operator runs.
  ReadyOperator* Keep(const ExportedOperator& op, std::string_view key,
                      std::unique_ptr<ReadyOperator>& ready) {
    Row* oldest = nullptr;
    for (Row& row : rows_) {
      if (row.busy && row.op == &op && row.key == key) return nullptr;
      if (!row.busy && (!oldest || row.last_use < oldest->last_use)) oldest = &row;
    }
    if (!oldest) return nullptr;
    oldest->key.assign(key);
    oldest->op = &op;
    oldest->ready = std::move(ready);
    return Begin(*oldest);
  }
  static void End(void* table, ReadyOperator* op) noexcept {
    for (Row& row : static_cast<KeptTable*>(table)->rows_)
      if (row.ready.get() == op) row.busy = false;
  }

 private:
  struct Row {
    const ExportedOperator* op = nullptr;
    std::string key;
    std::unique_ptr<ReadyOperator> ready;
    uint64_t last_use = 0;
    bool busy = false;
  };
  ReadyOperator* Begin(Row& row) {
    row.busy = true;
    row.last_use = ++uses_;
    return row.ready.get();
  }

  Row rows_[16];
  uint64_t uses_ = 0;
};

OPKIT_INLINE Lease KeptOperator(const ExportedOperator& op, const CallKey& key,
                                MakeReadyOperator make) {
  KeptTable& table = KeptTable::OfThread();
  if (ReadyOperator* kept = table.Find(op, key.bytes())) [[likely]]
    return Lease(*kept, &KeptTable::End, &table);
  std::unique_ptr<ReadyOperator> made = make();
  if (ReadyOperator* kept = table.Keep(op, key.bytes(), made))
    return Lease(*kept, &KeptTable::End, &table);
  return Lease(
      *made.release(), [](void*, ReadyOperator* own) noexcept { delete own; }, nullptr);
}

OPKIT_INLINE OperatorPool::OperatorPool(const ExportedOperator& op, std::vector<int> present,
                                        Arguments args, const InvokeOptions& options)
    : op_(op),
      present_(std::move(present)),
      args_(std::move(args)),
      options_(options),
      one_at_a_time_(op.needs_instance()) {
  idle_.push_back(Make());
}

OPKIT_INLINE std::unique_ptr<ReadyOperator> OperatorPool::Make() const {
  return std::make_unique<ReadyOperator>(op_.name(), present_, args_, options_);
}

OPKIT_INLINE Lease OperatorPool::Take() {
  if (one_at_a_time_) {
    if (holder_.load() == std::this_thread::get_id())
      Throw(ErrorCode::kFailedPrecondition, "operator ", op_.name(),
            " keeps state between its runs, and is called while a run of it waits for this call");
    mutex_.lock();
    holder_.store(std::this_thread::get_id());
    return Lease(
        *idle_.front(),
        [](void* self, ReadyOperator*) noexcept {
          auto& pool = *static_cast<OperatorPool*>(self);
          pool.holder_.store({});
          pool.mutex_.unlock();
        },
        this);
  }
  std::unique_ptr<ReadyOperator> op;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      op = std::move(idle_.back());
      idle_.pop_back();
    } else {
      idle_.reserve(++made_);  // so that returning an operator needs no memory
    }
  }
  if (!op) op = Make();
  return Lease(
      *op.release(),
      [](void* self, ReadyOperator* used) noexcept {
        auto& pool = *static_cast<OperatorPool*>(self);
        const std::lock_guard lock(pool.mutex_);
        pool.idle_.emplace_back(used);
      },
      this);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_KEPT_OPERATORS_IPP_
