// Observers: started and stopped around every run on every path, in order, owned, never in the way.
#include "opkit/op/observer.hpp"

#include <doctest/doctest.h>

#include "body_op.hpp"
#include "opkit/device/cpu_stream.hpp"
#include "support/error_of.hpp"

namespace observer_test { namespace {

using opkit::CPUContext;
using opkit::CPUStreamContext;
using opkit::Error;
using opkit::ErrorCode;
using opkit::ObserverBase;
using opkit::OperatorBase;
using opkit::OperatorDef;
using opkit::Workspace;
using opkit::detail::Observable;
using opkit::detail::ObserverScope;

// Writes its letter at Start, and again at Stop: upper case for a run that succeeded.
template <class T>
class Letter : public ObserverBase<T> {
 public:
  Letter(T* subject, std::string& log, char letter)
      : ObserverBase<T>(subject), log_(&log), letter_(letter) {}
  ~Letter() override { log_->push_back('~'); }
  void Start() override { log_->push_back(letter_); }
  void Stop(bool succeeded) override {
    log_->push_back(succeeded ? static_cast<char>(letter_ - 'a' + 'A') : letter_);
  }

 private:
  std::string* log_;
  char letter_;
};
template <class T>
ObserverBase<T>* AttachLetter(Observable<T>& subject, std::string& log, char letter) {
  return subject.AttachObserver(
      std::make_unique<Letter<T>>(static_cast<T*>(&subject), log, letter));
}

class Thrower : public ObserverBase<OperatorBase> {
 public:
  using ObserverBase::ObserverBase;
  void Start() override { throw std::runtime_error("start failed"); }
  void Stop(bool) override { throw 3; }
};

template <class Context>
OperatorDef Def() {
  return OperatorDef("Body").Device(Context::kDeviceType);
}

TEST_CASE_TEMPLATE("observers start before and stop after the body, in the order of attachment",
                   Context, CPUContext, CPUStreamContext) {
  std::string log;
  Workspace ws;
  BodyOp<Context> op(Def<Context>(), &ws, [&](BodyOp<Context>&) {
    log.push_back('|');
    return true;
  });
  CHECK(op.NumObservers() == 0);
  op.Run();
  CHECK(log == "|");
  CHECK(AttachLetter<OperatorBase>(op, log, 'a')->subject() == &op);
  AttachLetter<OperatorBase>(op, log, 'b');
  CHECK(op.NumObservers() == 2);
  log.clear();
  op.Run();
  CHECK(log == "ab|AB");
  op.RunAsync();
  op.Finish();
  CHECK(log == "ab|ABab|AB");
}

TEST_CASE_TEMPLATE("observers stop on every failing path, and see the failure", Context, CPUContext,
                   CPUStreamContext) {
  std::string log;
  Workspace ws;
  bool thrown = false;
  BodyOp<Context> op(Def<Context>(), &ws, [&](BodyOp<Context>&) -> bool {
    if (thrown) throw std::runtime_error("body");
    return false;
  });
  AttachLetter<OperatorBase>(op, log, 'a');
  CHECK_THROWS_AS(op.Run(), Error);
  CHECK_THROWS_AS(op.RunAsync(), Error);
  thrown = true;
  CHECK_THROWS_AS(op.Run(), Error);
  CHECK_THROWS_AS(op.RunAsync(), Error);
  CHECK(log == "aaaaaaaa");
}

TEST_CASE("observers stop when a run is refused because the last one is in flight") {
  std::string log;
  Workspace ws;
  BodyOpCPU op(Def<CPUContext>(), &ws, [](BodyOpCPU&) { return true; });
  op.async_part = true;
  op.RunAsync();
  AttachLetter<OperatorBase>(op, log, 'a');
  CHECK(ErrorOf([&] { op.RunAsync(); }).code() == ErrorCode::kFailedPrecondition);
  CHECK(log == "aa");
  op.event().SetFinished();
}

TEST_CASE("observers are owned; detaching gives one back and leaves the others") {
  std::string log;
  Workspace ws;
  {
    BodyOpCPU op(Def<CPUContext>(), &ws, [](BodyOpCPU&) { return true; });
    auto* a = AttachLetter<OperatorBase>(op, log, 'a');
    AttachLetter<OperatorBase>(op, log, 'b');
    std::unique_ptr<ObserverBase<OperatorBase>> detached = op.DetachObserver(a);
    CHECK(detached.get() == a);
    CHECK(op.NumObservers() == 1);
    CHECK(op.DetachObserver(a) == nullptr);
    op.Run();
    CHECK(log == "bB");
    detached.reset();
    CHECK(log == "bB~");
  }
  CHECK(log == "bB~~");
}

TEST_CASE(
    "attaching a null observer is an Error; detaching from an unobserved operator is harmless") {
  Workspace ws;
  BodyOpCPU op(Def<CPUContext>(), &ws);
  CHECK(op.DetachObserver(nullptr) == nullptr);
  CHECK(ErrorOf([&] { op.AttachObserver(nullptr); }).code() == ErrorCode::kInvalidArgument);
  CHECK(op.NumObservers() == 0);
}

TEST_CASE("an observer's exception is kept; it never reaches the caller or hides the body's") {
  Workspace ws;
  std::string log;
  bool fail = false;
  BodyOpCPU op(Def<CPUContext>(), &ws, [&](BodyOpCPU&) -> bool {
    if (fail) throw Error(ErrorCode::kOutOfRange, "the body's own");
    CHECK(op.last_observer_error() == "start failed");
    return true;
  });
  op.AttachObserver(std::make_unique<Thrower>(&op));
  AttachLetter<OperatorBase>(op, log, 'a');
  CHECK(op.last_observer_error().empty());
  CHECK(op.Run());
  CHECK(op.last_observer_error() == "threw something that is not a std::exception");
  CHECK(log == "aA");  // the others are not affected
  fail = true;
  const Error error = ErrorOf([&] { op.Run(); });
  CHECK(error.message() == "the body's own");
  CHECK(log == "aAaa");
}

// A net needs no more than the base and a scope to be observed as operators are.
class Net : public Observable<Net> {
 public:
  explicit Net(std::vector<OperatorBase*> ops) : ops_(std::move(ops)) {}
  bool Run() {
    ObserverScope<Net> observers(*this);
    for (OperatorBase* op : ops_) op->Run();
    observers.Succeeded();
    return true;
  }

 private:
  std::vector<OperatorBase*> ops_;
};

TEST_CASE("a net's observers and its operators' count 1212, and stop when an operator fails") {
  std::string log;
  Workspace ws;
  bool fail = false;
  BodyOpCPU first(Def<CPUContext>(), &ws, [](BodyOpCPU&) { return true; });
  BodyOpCPU second(Def<CPUContext>(), &ws, [&](BodyOpCPU&) { return !fail; });
  Net net({&first, &second});
  auto* observer = AttachLetter<Net>(net, log, 'n');
  AttachLetter<OperatorBase>(first, log, 'a');
  AttachLetter<OperatorBase>(second, log, 'b');
  net.Run();
  CHECK(log == "naAbBN");
  log.clear();
  fail = true;
  CHECK_THROWS_AS(net.Run(), Error);
  CHECK(log == "naAbbn");
  log.clear();
  fail = false;
  net.DetachObserver(observer);
  net.Run();
  CHECK(log == "~aAbB");
}

}  // namespace
}  // namespace observer_test
