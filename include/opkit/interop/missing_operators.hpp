// MissingOperators: operators of libraries that a saved graph needs and the program lacks. The
// readers of graphs collect them node by node and report them in one Error, so that a user sees all
// libraries at once.
#ifndef OPKIT_INTEROP_MISSING_OPERATORS_HPP_
#define OPKIT_INTEROP_MISSING_OPERATORS_HPP_

#include "opkit/base/index.hpp"
#include "opkit/base/name_index.hpp"
#include "opkit/op/op_registry.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A list of missing operators, each with its library and its first node.
class MissingOperators {
 public:
  // Adds an operator. `library` and `version` are from the file; `version` may be empty. `place`
  // names the node.
  void Add(const std::string& op, const std::string& library, const std::string& version,
           const std::string& place) {
    const int number = known_.Add(StrCat(op, '\0', library, '\0', version));
    if (Index(number) < missing_.size()) {
      ++missing_[Index(number)].more_nodes;
    } else {
      missing_.push_back({StrCat("operator ", op, " of library ", library,
                                 version.empty() ? "" : StrCat(", version ", version)),
                          place});
    }
  }
  // Throws kNotFound, with the missing operators and the remedy, if there are any.
  void ThrowIfAny() const {
    if (missing_.empty()) return;
    std::string text;
    for (const Missing& one : missing_) {
      text += StrCat(text.empty() ? "" : "; ", one.what, " (", one.place);
      if (one.more_nodes > 0)
        text += StrCat(" and ", one.more_nodes, one.more_nodes == 1 ? " more node" : " more nodes");
      text += ")";
    }
    Throw(ErrorCode::kNotFound, "the graph needs operators that this program lacks: ", text,
          "; load the library before the graph, by Library::Load or opkit's option --library");
  }

 private:
  // An operator and the nodes that need it.
  struct Missing {
    std::string what, place;  // `place` is the first node
    int64_t more_nodes = 0;
  };
  NameIndex known_;
  std::vector<Missing> missing_;  // by the number in `known_`
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_MISSING_OPERATORS_HPP_
