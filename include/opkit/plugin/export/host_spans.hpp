// HostSpans: adds the spans of a library to the profile that its host records. Included by
// definitions.
#ifndef OPKIT_PLUGIN_EXPORT_HOST_SPANS_HPP_
#define OPKIT_PLUGIN_EXPORT_HOST_SPANS_HPP_

#include <new>

#include "opkit/base/interned_names.hpp"
#include "opkit/base/scoped_value.hpp"
#include "opkit/device/invocation.hpp"
#include "opkit/op/boundary/host/program_host.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The span sink of a library. Sends to the host the spans that ProfileScope and Invoke open during
// runs of the library's operators. Each thread has a list of its open spans.
class OPKIT_IMAGE_LOCAL HostSpans final : public SpanSink {
 public:
  static void Use() { g_image_span_sink = &g_sink; }
  // Installs the sink if the host records, else removes it. True if the host records.
  static bool Follow() {
    static constinit HostSpans spans;
    SpanSink* const wanted =
        OPKIT_ABI_HAS(g_host, span_begin) && g_host->is_profiling() ? &spans : nullptr;
    // Relaxed, as in CurrentSpanSink: a thread that sees the sink late records later.
    if (CurrentSpanSink() != wanted) g_sink.store(wanted, std::memory_order_relaxed);
    return wanted;
  }
  // Marks the next span of this thread with the operator's name: the host has already opened this
  // span.
  class Known {
   public:
    explicit Known(const std::string& op) : name_(t_known, InternName(op)) {}

   private:
    const ScopedValue<uint32_t> name_;
  };

  void Open(Invocation& now, SpanNames names, const Device*, bool adopted) noexcept override {
    if (t_known != 0 && names.name == t_known) {
      t_known = 0;
      return Pass();
    }
    if (adopted) return Pass();
    auto* const span = new (std::nothrow) Span{t_span};
    if (!span) return Pass();
    t_span = span;
    // The host gives the span an identity, as a child of the current identity. If both images share
    // the variable of the current identity, `now` is this variable: reset it to the parent first.
    now.id = now.parent;
    try {
      g_host->span_begin(static_cast<int32_t>(now.kind), InternedName(names.name).c_str(),
                         InternedName(names.node).c_str(), &span->scope);
      return;
    } catch (...) {  // no memory for the names
    }
    t_span = span->outer;
    delete span;
    Pass();
  }
  void Close() noexcept override {
    int64_t& passed = Passed();
    if (passed > 0) return static_cast<void>(--passed);
    Span* const span = t_span;
    t_span = span->outer;
    g_host->scope_end(&span->scope);
    delete span;
  }
  void Completed(uint64_t) noexcept override {}
  void Pushed(const Invocation&, SpanNames) noexcept override {}

 private:
  struct Span {
    Span* outer;
    int64_t passed = 0;  // number of open spans inside this span that were not sent to the host
    opkit_scope scope{};
  };
  static int64_t& Passed() { return t_span ? t_span->passed : t_passed; }
  static void Pass() { ++Passed(); }

  inline static constinit std::atomic<SpanSink*> g_sink{nullptr};
  inline static constinit thread_local Span* t_span = nullptr;
  inline static constinit thread_local int64_t t_passed = 0;
  inline static constinit thread_local uint32_t t_known = 0;  // an interned name
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_HOST_SPANS_HPP_
