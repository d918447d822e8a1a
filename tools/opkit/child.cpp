#include "child.hpp"

#include <new>
#include <optional>

#include "program.hpp"

namespace cli {
namespace {

// Begins the answer of a child that is a Failure.
constexpr char kFailed = '\0';
std::string AnswerOf(const Failure& failure) {
  return std::string{kFailed, static_cast<char>(failure.code())} + failure.what() + '\0' +
         failure.hint();
}
Failure FailureOf(const std::string& answer) {
  const size_t hint = answer.find('\0', 2);
  return {static_cast<ExitCode>(answer[1]), answer.substr(2, hint - 2), answer.substr(hint + 1)};
}

}  // namespace

ChildOutcome RunInChild(double seconds, const ChildWork& work) {
  const auto guarded = [&](const ChildReporter& voice) {
    std::optional<Failure> failure;
    try {
      return work(voice);
    } catch (const Failure& thrown) {
      failure = thrown;
    } catch (const opkit::Error& error) {
      failure.emplace(ExitCode::kRunFailed, Describe(error));
    } catch (const std::bad_alloc&) {
      failure.emplace(ExitCode::kRunFailed, "out of memory");
    } catch (const std::exception& error) {
      failure.emplace(ExitCode::kRunFailed, error.what());
    }
    voice.Answer(AnswerOf(*failure));
    return ChildEnd::kAtOnce;
  };
  ChildOutcome outcome = FailWith(ExitCode::kRunFailed, "",
                                  [&] { return opkit::detail::RunInChild(seconds, guarded); });
  if (!outcome.answer.empty() && outcome.answer[0] == kFailed) throw FailureOf(outcome.answer);
  return outcome;
}

}  // namespace cli
