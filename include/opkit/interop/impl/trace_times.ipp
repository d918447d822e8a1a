// The reader of Chrome traces: event by event, so that a large trace is never in memory as a whole.
#ifndef OPKIT_INTEROP_IMPL_TRACE_TIMES_IPP_
#define OPKIT_INTEROP_IMPL_TRACE_TIMES_IPP_

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "opkit/interop/mapped_file.hpp"
#include "opkit/interop/trace_times.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class TraceReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TraceReader(bool by_node) : by_node_(by_node) {}

  bool has_events() const { return events_ != 0; }
  const std::string& problem() const { return problem_; }

  std::vector<NamedTimes> Times() {
    std::map<std::string, std::vector<double>> times;
    for (auto& [id, span] : spans_) {
      if (const auto ended = completed_.find(id); ended != completed_.end())
        span.duration = (std::max)(span.duration, ended->second);
      times[span.name].push_back(span.duration);
    }
    if (spans_.empty()) times = std::move(foreign_);
    std::vector<NamedTimes> out;
    for (auto& [name, list] : times) out.push_back({name, std::move(list)});
    return out;
  }

  bool null() override { return Value(); }
  bool boolean(bool value) override {
    if (in_args() && key_ == "open") event_.open = value;
    return Value();
  }
  bool number_integer(number_integer_t value) override {
    return Number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (in_args() && key_ == "id") {
      event_.id = value;
      event_.has_id = true;
    }
    if (in_event() && key_ == "id") event_.pair = value;
    return Number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Number(value); }
  bool string(string_t& value) override {
    if (in_event()) {
      if (key_ == "ph" && value.size() == 1) event_.phase = value[0];
      if (key_ == "name") event_.name = std::move(value);
      if (key_ == "cat") event_.category = std::move(value);
    } else if (in_args() && key_ == "node") {
      event_.node = std::move(value);
    }
    return Value();
  }
  bool binary(binary_t&) override { return Value(); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool start_array(size_t) override {
    ++depth_;
    if (events_ == 0 && (depth_ == 1 || (depth_ == 2 && key_ == "traceEvents"))) events_ = depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool start_object(size_t) override {
    ++depth_;
    if (in_event()) event_ = {};
    if (events_ != 0 && depth_ == events_ + 2) args_ = key_ == "args";
    return true;
  }
  bool end_object() override {
    if (in_event()) Take();
    --depth_;
    if (depth_ == events_ + 1) args_ = false;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    problem_ = error.what();
    return false;
  }

 private:
  struct Event {
    char phase = 0;
    bool has_id = false, open = false;
    std::string name, category, node;
    double time = 0, duration = 0;  // microseconds
    uint64_t id = 0, pair = 0;
  };
  struct Span {
    std::string name;
    double duration = -1;  // ns
  };

  // Whether what comes is a member of an event, or of its args.
  bool in_event() const { return events_ != 0 && depth_ == events_ + 1; }
  bool in_args() const { return args_ && depth_ == events_ + 2; }
  bool Value() { return true; }
  bool Number(double value) {
    if (in_event() && key_ == "ts") event_.time = value;
    if (in_event() && key_ == "dur") event_.duration = value;
    return true;
  }
  static double Ns(double microseconds) { return std::round(microseconds * 1000); }

  void Take() {
    if (event_.phase == 'X' && !event_.open) {
      std::string name = std::move(event_.name);
      if (by_node_ && !event_.node.empty()) name += " (" + event_.node + ")";
      if (event_.has_id) {
        // Parts of an invocation in other threads have its id, and are inside its time.
        Span& span = spans_[event_.id];
        if (Ns(event_.duration) > span.duration) span = {std::move(name), Ns(event_.duration)};
      } else {
        foreign_[std::move(name)].push_back(Ns(event_.duration));
      }
    } else if (event_.category == "asynchronous" && event_.phase == 'b') {
      begun_[event_.pair] = event_.time;
    } else if (event_.category == "asynchronous" && event_.phase == 'e') {
      if (const auto begun = begun_.find(event_.pair); begun != begun_.end()) {
        completed_[event_.pair] = Ns(event_.time - begun->second);
        begun_.erase(begun);
      }
    }
  }

  const bool by_node_;
  int depth_ = 0;
  int events_ = 0;  // the depth of the list of events; 0: not seen yet
  bool args_ = false;
  std::string key_, problem_;
  Event event_;
  std::unordered_map<uint64_t, Span> spans_;
  std::unordered_map<uint64_t, double> begun_, completed_;
  std::map<std::string, std::vector<double>> foreign_;  // of events without an id
};

}  // namespace detail

OPKIT_INLINE std::vector<NamedTimes> ReadTraceTimes(const std::string& path, bool by_node) {
  const Storage file = MapFile(path);
  const std::string_view text = BytesOf(file);
  detail::TraceReader reader(by_node);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader))
    Throw(ErrorCode::kInvalidArgument, "'", path,
          "' is no Chrome trace in JSON: ", reader.problem());
  if (!reader.has_events())
    Throw(ErrorCode::kInvalidArgument, "'", path,
          "' is no Chrome trace: it has no list \"traceEvents\"");
  return reader.Times();
}

}  // namespace opkit

#endif  // OPKIT_INTEROP_IMPL_TRACE_TIMES_IPP_
