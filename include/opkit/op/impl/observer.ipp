// ObserverList's definitions: the list of observers that a subject owns.
#ifndef OPKIT_OP_IMPL_OBSERVER_IPP_
#define OPKIT_OP_IMPL_OBSERVER_IPP_

#include <algorithm>
#include <vector>

#include "opkit/op/observer.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

struct ObserverList::Items {
  std::vector<AnyObserver*> list;
  std::string error;
};

OPKIT_INLINE ObserverList::~ObserverList() {
  if (!items_) return;
  for (AnyObserver* observer : items_->list) delete observer;
  delete items_;
}
OPKIT_INLINE void ObserverList::Attach(AnyObserver* observer) {
  if (!observer) Throw(ErrorCode::kInvalidArgument, "AttachObserver was given null");
  if (!items_) items_ = new Items;
  items_->list.push_back(observer);
}
OPKIT_INLINE bool ObserverList::Detach(const AnyObserver* observer) {
  if (!items_) return false;
  const auto found = std::find(items_->list.begin(), items_->list.end(), observer);
  if (found == items_->list.end()) return false;
  items_->list.erase(found);
  return true;
}
OPKIT_INLINE void ObserverList::Take(ObserverList& other, void* subject) {
  if (!other.items_ || &other == this) return;
  if (!items_) items_ = new Items;
  items_->list.insert(items_->list.end(), other.items_->list.begin(), other.items_->list.end());
  for (AnyObserver* observer : other.items_->list) observer->subject_ = subject;
  if (!other.items_->error.empty()) items_->error.swap(other.items_->error);
  delete std::exchange(other.items_, nullptr);
}
OPKIT_INLINE size_t ObserverList::size() const { return items_ ? items_->list.size() : 0; }
OPKIT_INLINE std::string ObserverList::error() const { return items_ ? items_->error : ""; }

// Iterates by index, because an observer may attach another.
template <class F>
void ObserverList::ForEach(F call) {
  for (size_t i = 0; i < items_->list.size(); ++i) {
    try {
      call(*items_->list[i]);
    } catch (...) {
      items_->error = CurrentError().what();
    }
  }
}
OPKIT_INLINE void ObserverList::Start() {
  ForEach([](AnyObserver& observer) { observer.Start(); });
}
OPKIT_INLINE void ObserverList::Stop(bool succeeded) {
  ForEach([&](AnyObserver& observer) { observer.Stop(succeeded); });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_IMPL_OBSERVER_IPP_
