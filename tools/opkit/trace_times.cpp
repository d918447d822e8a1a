// The reader of Chrome traces. It reads event by event, so that a large trace is never in memory as
// a whole.
#include "trace_times.hpp"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "opkit/base/algorithm.hpp"
#include "opkit/interop/mapped_file.hpp"

namespace cli {

using namespace opkit;

namespace {

class TraceReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TraceReader(bool by_node) : by_node_(by_node) {}

  bool has_events() const { return events_ != 0; }
  // True if the text read so far is a list of complete events.
  bool is_between_events() const { return events_ == 1 && depth_ == 1; }
  // True if the only error in `size` bytes is that they end too early.
  bool is_at_end(size_t size) const { return failed_at_ > size; }
  const std::string& problem() const { return problem_; }

  // Returns the durations by name: of opkit's invocations if the trace has any, else of the events
  // of another program.
  std::vector<NamedTimes> Times() {
    std::map<std::string, std::vector<double>> times;
    for (auto& [id, span] : spans_) {
      if (const auto ended = completed_.find(id); ended != completed_.end())
        span.duration = (std::max)(span.duration, ended->second);
      times[span.name].push_back(span.duration);
    }
    if (spans_.empty()) {
      TakePairs();
      times = std::move(foreign_);
    }
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
    if (std::string* const track = Track()) *track = std::to_string(value);
    return Number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (in_args() && key_ == "id") {
      event_.id = value;
      event_.has_id = true;
    }
    if (in_event() && key_ == "id") event_.pair = value;
    if (std::string* const track = Track()) *track = std::to_string(value);
    return Number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Number(value); }
  bool string(string_t& value) override {
    if (in_event()) {
      if (key_ == "ph" && value.size() == 1) event_.phase = value[0];
      if (key_ == "name") event_.name = std::move(value);
      if (key_ == "cat") event_.category = std::move(value);
      if (std::string* const track = Track()) *track = std::move(value);
    } else if (in_args() && key_ == "node") {
      event_.node = std::move(value);
    } else if (id2_ && (key_ == "local" || key_ == "global")) {
      event_.key = std::move(value);
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
    if (events_ != 0 && depth_ == events_ + 2) {
      args_ = key_ == "args";
      id2_ = key_ == "id2";
    }
    return true;
  }
  bool end_object() override {
    if (in_event()) Take();
    --depth_;
    if (depth_ == events_ + 1) args_ = id2_ = false;
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    failed_at_ = position;
    problem_ = error.what();
    return false;
  }

 private:
  // The members of the event being read.
  struct Event {
    char phase = 0;
    bool has_id = false, open = false;
    std::string name, category, node;
    std::string process, thread, key;  // "pid", "tid", "id" or "id2", whatever their type
    double time = 0, duration = 0;     // microseconds
    uint64_t id = 0, pair = 0;
  };
  // An invocation of opkit.
  struct Span {
    std::string name;
    double duration = -1;  // ns
  };
  // The begin or the end of a duration that another program records as two events.
  struct End {
    double time;  // microseconds
    bool begins;
    std::string name;
  };

  // True if the next value is a member of an event, or of an event's "args".
  bool in_event() const { return events_ != 0 && depth_ == events_ + 1; }
  bool in_args() const { return args_ && depth_ == events_ + 2; }
  bool Value() { return true; }
  bool Number(double value) {
    if (in_event() && key_ == "ts") event_.time = value;
    if (in_event() && key_ == "dur") event_.duration = value;
    return true;
  }
  static double Ns(double microseconds) { return std::round(microseconds * 1000); }
  // Returns the member of event_ for the next value if it is a "pid", "tid" or "id"; else null.
  std::string* Track() {
    if (!in_event()) return nullptr;
    return key_ == "pid"   ? &event_.process
           : key_ == "tid" ? &event_.thread
           : key_ == "id"  ? &event_.key
                           : nullptr;
  }

  // Pairs the begins and ends of each track; an end belongs to the latest open begin. Sorts first,
  // because the events of a file need not be in order.
  void TakePairs() {
    for (auto& [track, ends] : ends_) {
      opkit::detail::StableSort(ends, [](const End& a, const End& b) { return a.time < b.time; });
      std::vector<End> open;
      for (End& end : ends) {
        if (end.begins) {
          open.push_back(std::move(end));
        } else if (!open.empty()) {
          foreign_[std::move(open.back().name)].push_back(Ns(end.time - open.back().time));
          open.pop_back();
        }
      }
    }
  }

  // Takes a complete event.
  void Take() {
    if (event_.phase == 'X' && !event_.open) {
      std::string name = std::move(event_.name);
      if (by_node_ && !event_.node.empty()) name += " (" + event_.node + ")";
      if (event_.has_id) {
        // Parts of an invocation on other threads have the same id and lie inside its time: keep
        // the longest.
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
    } else if (const size_t kind = std::string_view("BEbeSF").find(event_.phase);
               kind != std::string_view::npos) {
      const std::string& track = kind < 2 ? event_.thread : event_.key;
      ends_[{kind / 2, kind < 2 ? "" : event_.category, event_.process, track}].push_back(
          {event_.time, kind % 2 == 0, std::move(event_.name)});
    }
  }

  const bool by_node_;
  int depth_ = 0;
  int events_ = 0;                   // depth of the list of events; 0: not seen yet
  bool args_ = false, id2_ = false;  // inside these members of an event
  std::string key_, problem_;
  size_t failed_at_ = 0;
  Event event_;
  std::unordered_map<uint64_t, Span> spans_;
  std::unordered_map<uint64_t, double> begun_, completed_;
  std::map<std::string, std::vector<double>> foreign_;  // durations of events without an id
  // By kind of event, category, process, and thread or id.
  std::map<std::tuple<size_t, std::string, std::string, std::string>, std::vector<End>> ends_;
};

}  // namespace

std::vector<NamedTimes> ReadTraceTimes(const std::string& path, TimesOf of) {
  const Storage file = MapFile(path);
  const std::string_view text = BytesOf(file);
  TraceReader reader(of == TimesOf::kNodes);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader) &&
      !(reader.is_between_events() && reader.is_at_end(text.size())))
    Throw(ErrorCode::kInvalidArgument, "'", path,
          "' is no Chrome trace in JSON: ", reader.problem());
  if (!reader.has_events())
    Throw(ErrorCode::kInvalidArgument, "'", path,
          "' is no Chrome trace: it has no list \"traceEvents\"");
  return reader.Times();
}

}  // namespace cli
