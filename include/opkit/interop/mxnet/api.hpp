// MxnetApi: calls the functions of one library for MXNet. A failure, or an exception that passes
// through a C function, becomes an Error with the messages that the library has written meanwhile.
#ifndef OPKIT_INTEROP_MXNET_API_HPP_
#define OPKIT_INTEROP_MXNET_API_HPP_

#include <algorithm>

#include "opkit/base/platform.hpp"
#include "opkit/interop/mxnet/symbol_names.hpp"
#include "opkit/interop/mxnet/symbols.hpp"
#include "opkit/op/function/attr_map.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Texts by name, as two arrays of C strings.
class MxnetTextMap {
 public:
  MxnetTextMap() = default;
  MxnetTextMap(MxnetTextMap&&) = delete;

  void Add(std::string key, std::string value) {
    texts_.emplace_back(std::move(key), std::move(value));
    keys_.clear();
  }
  // Makes the arrays. Call it after the last Add.
  void Finish() {
    keys_.clear();
    values_.clear();
    for (const auto& [key, value] : texts_) {
      keys_.push_back(key.c_str());
      values_.push_back(value.c_str());
    }
  }
  MxnetTexts keys() const { return keys_.data(); }
  MxnetTexts values() const { return values_.data(); }
  int size() const { return static_cast<int>(keys_.size()); }

 private:
  std::vector<std::pair<std::string, std::string>> texts_;
  std::vector<const char*> keys_, values_;
};

// The functions of one library. Several threads may call them.
class MxnetApi {
 public:
  MxnetApi(const SharedObject& file, std::string name)
      : symbols_(ReadMxnetSymbols(file, name)), name_(std::move(name)) {}
  MxnetApi(MxnetApi&&) = delete;

  const MxnetSymbols* operator->() const { return &symbols_; }
  const std::string& name() const { return name_; }

  // Runs `call`, which returns false for a failure. The Error of a failure has the library's
  // reason, and no more: callers say which function of which operator failed.
  template <class Call>
  void Run(Call call) const {
    const int before = symbols_.msg_size();
    std::string thrown;
    try {
      if (call()) [[likely]]
        return;
    } catch (const std::exception& exception) {
      thrown = StrCat("it threw: ", exception.what());
    } catch (...) {
      thrown = "it threw something that is not a std::exception";
    }
    ThrowFailure(before, thrown);
  }
  // Runs a function that returns nothing, so that it can fail only by an exception.
  template <class Call>
  void RunVoid(Call call) const {
    Run([&] { return call(), true; });
  }
  void Free(void* memory) const { symbols_.op_call_free(memory); }
  // Returns `count`, the number of `what` that the library says it has. Throws kInvalidArgument for
  // a number that cannot be.
  int Count(int count, const char* what) const {
    if (count < 0 || count > kMost)
      Throw(ErrorCode::kInvalidArgument, "library ", name_, " says that it has ", count, " ", what,
            "; ", kMost, " are the most");
    return count;
  }

 private:
  // The most operators, partitioners, strategies, passes and devices. A library is asked for each.
  static constexpr int kMost = 65535;
  static constexpr int kMostMessages = 100;

  [[noreturn]] OPKIT_COLD void ThrowFailure(int before, const std::string& thrown) const {
    std::string text = NewMessages(before);
    if (!thrown.empty()) text += (text.empty() ? "" : "; ") + thrown;
    throw Error(ErrorCode::kOperatorFailed,
                text.empty() ? "it returned failure without a message" : text);
  }
  // Returns the messages since number `before` that no other failure has reported, the first
  // kMostMessages of them. The library's list only grows, and reading a message leaks memory in the
  // library; so it reads each once.
  std::string NewMessages(int before) const {
    MutexLock lock(mutex_);
    const int size = symbols_.msg_size(), first = (std::max)(before, reported_);
    std::string text;
    for (int i = first; i < size; ++i) {
      if (i - first == kMostMessages) {
        text += StrCat("; and ", size - i, " more messages");
        break;
      }
      const char* message = nullptr;
      symbols_.msg_get(i, &message);
      if (message && *message) text += (text.empty() ? "" : "; ") + std::string(message);
    }
    reported_ = (std::max)(reported_, size);
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }

  const MxnetSymbols symbols_;
  const std::string name_;
  mutable Mutex mutex_;       // guards the library's list of messages while it is read
  mutable int reported_ = 0;  // number of messages that earlier failures have reported
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_MXNET_API_HPP_
