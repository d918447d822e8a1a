// The documentation of an operator's attributes, inputs and outputs: the same in a schema and
// across the boundary of a library.
#ifndef OPKIT_OP_SCHEMA_VALUE_SCHEMA_HPP_
#define OPKIT_OP_SCHEMA_VALUE_SCHEMA_HPP_

#include <optional>

#include "opkit/core/attribute.hpp"

namespace opkit::inline OPKIT_ABI {

// One attribute that an operator takes.
struct AttributeSchema {
  std::string name;
  std::string doc;
  bool required = false;
  std::optional<AttributeType> type;  // unset: any
  std::optional<Attribute> default_value;
  std::vector<std::string> values = {};  // that a string, or each of a list, may have; empty: any

  // The first string of an attribute that is none of the values; null where all are.
  const std::string* FindOther(const Attribute& given) const {
    for (const std::string& found : given.values().strings) {
      bool allowed = values.empty();
      for (const std::string& value : values) allowed |= value == found;
      if (!allowed) return &found;
    }
    return nullptr;
  }
};

// One input or output.
struct ValueSchema {
  std::string name;
  std::string doc;
  std::vector<DType> dtypes;  // empty: any

  // True also for a dtype that is not known.
  bool Allows(DType dtype) const {
    for (const DType allowed : dtypes)
      if (allowed == dtype) return true;
    return dtypes.empty() || dtype == DType::kUndefined;
  }
};

}  // namespace opkit

#endif  // OPKIT_OP_SCHEMA_VALUE_SCHEMA_HPP_
