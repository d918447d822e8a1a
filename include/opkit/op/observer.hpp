// Observers: watch operators and nets from outside. What is attached is started before and stopped
// after every run, on every path. Without observers a run pays one predictable branch.
#ifndef OPKIT_OP_OBSERVER_HPP_
#define OPKIT_OP_OBSERVER_HPP_

#include <memory>
#include <string>
#include <vector>

#include "opkit/base/error.hpp"

namespace opkit::inline OPKIT_ABI {

// Watches one T (an operator or a net). An exception of Start or Stop is kept as
// `Observable::last_observer_error` and never reaches the caller of Run.
template <class T>
class Observable;
template <class T>
class ObserverBase {
 public:
  explicit ObserverBase(T* subject) : subject_(subject) {}
  virtual ~ObserverBase() = default;
  virtual void Start() {}
  // Also called when the run failed; `succeeded` tells.
  virtual void Stop(bool succeeded) { static_cast<void>(succeeded); }
  T* subject() const { return subject_; }

 private:
  friend Observable<T>;
  T* subject_;
};

// Base of a class that can be observed. Attaching and detaching may not race with a run.
template <class T>
class Observable {
 public:
  Observable() = default;
  Observable(Observable&&) = delete;

  // Takes ownership; the pointer returned is the handle to detach it by.
  ObserverBase<T>* AttachObserver(std::unique_ptr<ObserverBase<T>> observer) {
    if (!observer) Throw(ErrorCode::kInvalidArgument, "AttachObserver was given null");
    if (!observers_) observers_ = std::make_unique<List>();
    return observers_->items.emplace_back(std::move(observer)).get();
  }
  // Gives it back; null when it is not attached.
  std::unique_ptr<ObserverBase<T>> DetachObserver(const ObserverBase<T>* observer) {
    if (!observers_) return nullptr;
    auto& items = observers_->items;
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].get() != observer) continue;
      std::unique_ptr<ObserverBase<T>> detached = std::move(items[i]);
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(i));
      return detached;
    }
    return nullptr;
  }
  // Takes the observers of `other`, which watch this subject from now on, behind those that are
  // here.
  void TakeObservers(Observable& other) {
    if (!other.observers_ || &other == this) return;
    if (!observers_) observers_ = std::make_unique<List>();
    auto& items = observers_->items;
    items.reserve(items.size() + other.NumObservers());
    for (auto& observer : other.observers_->items) {
      observer->subject_ = static_cast<T*>(this);
      items.push_back(std::move(observer));
    }
    if (!other.observers_->error.empty()) observers_->error.swap(other.observers_->error);
    other.observers_.reset();
  }
  size_t NumObservers() const { return observers_ ? observers_->items.size() : 0; }
  // The last exception of an observer; empty when there was none.
  std::string last_observer_error() const { return observers_ ? observers_->error : ""; }

  void StartAllObservers() {
    if (observers_) [[unlikely]]
      ForEach([](ObserverBase<T>& observer) { observer.Start(); });
  }
  void StopAllObservers(bool succeeded) {
    if (observers_) [[unlikely]]
      ForEach([&](ObserverBase<T>& observer) { observer.Stop(succeeded); });
  }

 private:
  struct List {
    std::vector<std::unique_ptr<ObserverBase<T>>> items;
    std::string error;
  };
  template <class F>
  OPKIT_COLD void ForEach(F call) {
    for (size_t i = 0; i < observers_->items.size(); ++i) {
      try {
        call(*observers_->items[i]);
      } catch (...) {
        observers_->error = CurrentError().what();
      }
    }
  }

  std::unique_ptr<List> observers_;  // made with the first
};

// Starts the observers of `subject` and stops them at the end of the scope, exceptions included.
// Call Succeeded() at the end of the good path.
template <class T>
class ObserverScope {
 public:
  explicit ObserverScope(Observable<T>& subject) : subject_(subject) {
    subject_.StartAllObservers();
  }
  ObserverScope(ObserverScope&&) = delete;
  ~ObserverScope() { subject_.StopAllObservers(succeeded_); }
  void Succeeded() { succeeded_ = true; }

 private:
  Observable<T>& subject_;
  bool succeeded_ = false;
};

}  // namespace opkit

#endif  // OPKIT_OP_OBSERVER_HPP_
