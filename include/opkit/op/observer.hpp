// Observers: watch operators and nets from outside. An attached observer is started before and
// stopped after every run, also after a failed run. Without observers a run pays one predictable
// branch.
#ifndef OPKIT_OP_OBSERVER_HPP_
#define OPKIT_OP_OBSERVER_HPP_

#include <memory>
#include <string>

#include "opkit/base/error.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

class ObserverList;
// The base class of all observers, for every class of subjects.
class AnyObserver {
 public:
  explicit AnyObserver(void* subject) : subject_(subject) {}
  virtual ~AnyObserver() = default;
  virtual void Start() {}
  // Runs at the end of every run; `succeeded` is false if the run failed.
  virtual void Stop(bool succeeded) { static_cast<void>(succeeded); }

 protected:
  void* subject_;
  friend ObserverList;
};

// The observers of one subject, owned by this list. One class serves all types of subjects.
class ObserverList {
 public:
  ObserverList() = default;
  ObserverList(ObserverList&&) = delete;
  ~ObserverList();

  void Attach(AnyObserver* observer);
  // Gives ownership back to the caller; returns false if the observer is not attached.
  bool Detach(const AnyObserver* observer);
  void Take(ObserverList& other, void* subject);
  bool empty() const { return !items_; }
  size_t size() const;
  std::string error() const;
  void Start();
  void Stop(bool succeeded);

 private:
  struct Items;
  template <class F>
  void ForEach(F call);

  Items* items_ = nullptr;  // made with the first observer
};

}  // namespace detail

// Watches one T (an operator or a net). An exception of Start or Stop is kept in
// `Observable::last_observer_error` and never reaches the caller of Run.
template <class T>
class ObserverBase : public detail::AnyObserver {
 public:
  explicit ObserverBase(T* subject) : AnyObserver(subject) {}
  T* subject() const { return static_cast<T*>(subject_); }
};

namespace detail {

// Base of a class that can be observed. Attaching and detaching may not race with a run.
template <class T>
class Observable {
 public:
  Observable() = default;
  Observable(Observable&&) = delete;

  // Takes ownership; DetachObserver takes the returned pointer.
  ObserverBase<T>* AttachObserver(std::unique_ptr<ObserverBase<T>> observer) {
    observers_.Attach(observer.get());
    return observer.release();
  }
  // Returns the observer to the caller; null if it is not attached.
  std::unique_ptr<ObserverBase<T>> DetachObserver(const ObserverBase<T>* observer) {
    return std::unique_ptr<ObserverBase<T>>(
        observers_.Detach(observer) ? const_cast<ObserverBase<T>*>(observer) : nullptr);
  }
  // Appends the observers of `other` to this subject's observers. They watch this subject from now
  // on.
  void TakeObservers(Observable& other) {
    observers_.Take(other.observers_, static_cast<T*>(this));
  }
  size_t NumObservers() const { return observers_.size(); }
  // Returns the text of the last exception of an observer; empty if there was none.
  std::string last_observer_error() const { return observers_.error(); }

  void StartAllObservers() {
    if (!observers_.empty()) [[unlikely]]
      observers_.Start();
  }
  void StopAllObservers(bool succeeded) {
    if (!observers_.empty()) [[unlikely]]
      observers_.Stop(succeeded);
  }

 private:
  ObserverList observers_;
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

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/observer.ipp"
#endif

#endif  // OPKIT_OP_OBSERVER_HPP_
