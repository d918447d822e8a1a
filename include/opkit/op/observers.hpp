// Ready-made observers: they record how often an operator or a net runs, how long it takes, and the
// shapes, NaNs and infinities of an operator's outputs. Observe attaches an observer; the operator
// or net owns it.
#ifndef OPKIT_OP_OBSERVERS_HPP_
#define OPKIT_OP_OBSERVERS_HPP_

#include "opkit/base/platform.hpp"
#include "opkit/op/operator_base.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Attaches an observer to an operator or a net, which owns it. The returned pointer serves to read
// and to detach the observer.
//
//   auto* time = Observe<TimeObserver>(*op);
//   auto* numbers = Observe<NumericObserver>(*op);
//   op->Run();
//   std::puts(StrCat(time->average_ms(), " ms\n", numbers->Report()).c_str());
template <template <class> class Observer, class T>
Observer<T>* Observe(detail::Observable<T>& subject) {
  return static_cast<Observer<T>*>(
      subject.AttachObserver(std::make_unique<Observer<T>>(static_cast<T*>(&subject))));
}
template <class Observer, class T>
Observer* Observe(detail::Observable<T>& subject) {
  return static_cast<Observer*>(
      subject.AttachObserver(std::make_unique<Observer>(static_cast<T*>(&subject))));
}

template <class T>
class RunCountObserver : public ObserverBase<T> {
 public:
  using ObserverBase<T>::ObserverBase;
  void Stop(bool succeeded) override { ++(succeeded ? succeeded_ : failed_); }

  int64_t runs() const { return succeeded_ + failed_; }
  int64_t failed_runs() const { return failed_; }

 private:
  int64_t succeeded_ = 0, failed_ = 0;
};

// Measures wall-clock milliseconds from Start to Stop, failed runs included. Waits for the
// operator's device at both ends, to measure only the operator's own work: an observed RunAsync
// waits. (Does not wait for the asynchronous part of a CPU operator.)
template <class T>
class TimeObserver : public ObserverBase<T> {
 public:
  using ObserverBase<T>::ObserverBase;
  void Start() override {
    Drain();
    start_ns_ = detail::MonotonicNs();
  }
  void Stop(bool) override {
    Drain();
    last_ms_ = static_cast<double>(detail::MonotonicNs() - start_ns_) * 1e-6;
    total_ms_ += last_ms_;
    ++runs_;
  }

  int64_t runs() const { return runs_; }
  double last_ms() const { return last_ms_; }
  double total_ms() const { return total_ms_; }
  // 0 before the first run.
  double average_ms() const { return runs_ ? total_ms_ / static_cast<double>(runs_) : 0; }

 private:
  void Drain() {
    if constexpr (requires(T& subject) { subject.SyncDeviceBarrierForObservers(); })
      this->subject()->SyncDeviceBarrierForObservers();
  }
  int64_t start_ns_ = 0;
  double last_ms_ = 0, total_ms_ = 0;
  int64_t runs_ = 0;
};

// The NaNs and infinities of one output after a run.
struct OutputNumerics {
  std::string name;
  DType dtype = DType::kUndefined;
  Shape shape{0};
  bool checked = false;  // true for a floating-point tensor that the host can read
  int64_t nans = 0;
  int64_t infinities = 0;
  int64_t first_bad = -1;  // row-major index of the first NaN or infinity
};

// Counts NaNs and infinities in every output of a run. Reads all elements on the host: for finding
// faults, not for production. Skips a run that failed or is still writing.
class NumericObserver final : public ObserverBase<OperatorBase> {
 public:
  using ObserverBase<OperatorBase>::ObserverBase;
  OPKIT_INLINE void Stop(bool succeeded) override;

  // Returns the outputs of the last run; empty if it failed.
  const std::vector<OutputNumerics>& outputs() const { return outputs_; }
  int64_t bad_runs() const { return bad_runs_; }
  // Returns "Log (X) -> (Y)\n  output 'Y' float32[2, 3]: 1 NaN, 2 infinite, first at element 4".
  std::string Report() const;

 private:
  std::vector<OutputNumerics> outputs_;
  int64_t bad_runs_ = 0;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/observers.ipp"
#endif

#endif  // OPKIT_OP_OBSERVERS_HPP_
