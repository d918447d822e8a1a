// DefersFailures: what an operator implements whose device finds errors in the elements of tensors,
// such as an index outside its axis. The code of a device cannot throw, and the host does not wait
// for it in RunOnDevice. So the device leaves a note in memory that the host reads later.
#ifndef OPKIT_DEVICE_DEFERRED_FAILURE_HPP_
#define OPKIT_DEVICE_DEFERRED_FAILURE_HPP_

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Executors call it at the end of each run. An operator that runs without an executor throws the
// failure in a later RunOnDevice.
class DefersFailures {
 public:
  // Throws the failure that the work of earlier runs has noted since the last call, with the
  // operator as context. Does not wait for work that is under way.
  virtual void ThrowDeferred() = 0;
  // Forgets the failures of the runs so far, also those that their work, which may be under way,
  // has yet to note. Executors call it after a run that failed otherwise or was cancelled. Does not
  // wait for work.
  virtual void DiscardDeferred() = 0;

 protected:
  ~DefersFailures() = default;
};

}}  // namespace opkit

#endif  // OPKIT_DEVICE_DEFERRED_FAILURE_HPP_
