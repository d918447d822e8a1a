// What works on graphs: the operator that runs a subgraph, partitioners and passes. They read the
// JSON of a graph as far as they need it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boundary.h"

enum { MOST_NODES = 64, MOST_INPUTS = 8 };
typedef struct {
  const char* at;
  int size;
} Slice;  // a part of the JSON as it stands there
typedef struct {
  Slice op, name, attributes, subgraphs;  // op and name without quotes
  int inputs[MOST_INPUTS][3];             // node, output, version
  int num_inputs;
} Node;
typedef struct {
  Node nodes[MOST_NODES];
  int num_nodes;
  int heads[MOST_INPUTS][3];
  int num_heads;
} Graph;

static const char* Blank(const char* at) { return at + strspn(at, " \n\t\r"); }
static const char* After(const char* at, char c) {
  at = Blank(at);
  return *at == c ? Blank(at + 1) : NULL;
}
// Returns where the value at `at` ends; null if it does not end.
static const char* EndOfValue(const char* at) {
  int depth = 0;
  do {
    at = Blank(at);
    if (*at == '"') {
      for (++at; *at && *at != '"'; ++at)
        if (*at == '\\' && !*++at) return NULL;
      if (!*at) return NULL;
      ++at;
    } else if (*at == '[' || *at == '{') {
      ++depth, ++at;
    } else if (*at == ']' || *at == '}') {
      --depth, ++at;
    } else if (*at == ',' || *at == ':') {
      ++at;
    } else {
      const size_t size = strcspn(at, ",:]}[{\" \n\t\r");
      if (size == 0) return NULL;
      at += size;
    }
  } while (depth > 0);
  return at;
}
static Slice ValueAt(const char* at) {
  const char* end = EndOfValue(at);
  const Slice value = {at, end ? (int)(end - at) : 0};
  return value;
}
static Slice Unquoted(Slice text) {
  const Slice inner = {text.at + 1, text.size - 2};
  return inner;
}
static int Is(Slice text, const char* other) {
  return text.at && text.size == (int)strlen(other) && !strncmp(text.at, other, strlen(other));
}
// Calls on_member for each member of an object, or on_element for each element of a list.
typedef int (*Visit)(void* into, Slice key, Slice value);
static int ForEach(Slice all, void* into, Visit visit) {
  const int is_object = all.size > 0 && all.at[0] == '{';
  if (all.size < 2 || (!is_object && all.at[0] != '[')) return FAIL;
  const char* at = Blank(all.at + 1);
  while (at && *at != '}' && *at != ']') {
    Slice key = {NULL, 0};
    if (is_object) {
      key = ValueAt(at);
      if (key.size < 2 || !(at = After(key.at + key.size, ':'))) return FAIL;
      key = Unquoted(key);
    }
    const Slice value = ValueAt(at);
    if (value.size == 0 || !visit(into, key, value)) return FAIL;
    at = Blank(value.at + value.size);
    if (*at == ',') at = Blank(at + 1);
  }
  return SUCCESS;
}
typedef struct {
  int (*lists)[3];
  int* count;
} Entries;
static int AddEntry(void* into, Slice key, Slice value) {
  (void)key;
  const Entries* entries = into;
  if (*entries->count == MOST_INPUTS) return FAIL;
  int* list = entries->lists[(*entries->count)++];
  list[2] = 0;
  return sscanf(value.at, "[ %d , %d , %d", &list[0], &list[1], &list[2]) >= 2;
}
static int AddMember(void* into, Slice key, Slice value) {
  Node* node = into;
  Entries inputs = {node->inputs, &node->num_inputs};
  if (Is(key, "op")) node->op = Unquoted(value);
  if (Is(key, "name")) node->name = Unquoted(value);
  if (Is(key, "attrs")) node->attributes = value;
  if (Is(key, "subgraphs")) node->subgraphs = value;
  return !Is(key, "inputs") || ForEach(value, &inputs, AddEntry);
}
static int AddNode(void* into, Slice key, Slice value) {
  (void)key;
  Graph* graph = into;
  if (graph->num_nodes == MOST_NODES) return FAIL;
  return ForEach(value, &graph->nodes[graph->num_nodes++], AddMember);
}
static int AddPart(void* into, Slice key, Slice value) {
  Graph* graph = into;
  Entries heads = {graph->heads, &graph->num_heads};
  if (Is(key, "nodes")) return ForEach(value, graph, AddNode);
  return !Is(key, "heads") || ForEach(value, &heads, AddEntry);
}
static int Read(const char* json, Graph* graph) {
  memset(graph, 0, sizeof *graph);
  return ForEach(ValueAt(json), graph, AddPart) ||
         ERROR_MESSAGE("this is not a graph: %.40s", json);
}
typedef struct {
  const char* key;
  Slice value;
} Search;
static int Compare(void* into, Slice key, Slice value) {
  Search* search = into;
  if (Is(key, search->key)) search->value = Unquoted(value);
  return SUCCESS;
}
static Slice Attribute(const Node* node, const char* key) {
  Search search = {key, {NULL, 0}};
  if (node->attributes.at) ForEach(node->attributes, &search, Compare);
  return search.value;
}

// Runs a body of exp, log and elemwise_add of float32 tensors of one size. What is the node's input
// but not the body's, __ext_extra_inputs__ of them, is added to each output: its first element.
static int RunBody(State* state, const Tensor* in, int num_in, Tensor* out, int num_out,
                   const Resource* resource) {
  (void)resource;
  Graph graph;
  if (!Read(state->text, &graph)) return FAIL;
  float* values[MOST_NODES] = {NULL};
  const int64_t size = SizeOf(&in[0]);
  const int extra = (int)state->numbers[0];
  int result = SUCCESS;
  for (int i = 0, next = 0; result && i < graph.num_nodes; ++i) {
    const Node* node = &graph.nodes[i];
    values[i] = calloc((size_t)size + 1, sizeof(float));
    const float* a = node->num_inputs > 0 ? values[node->inputs[0][0]] : NULL;
    const float* b = node->num_inputs > 1 ? values[node->inputs[1][0]] : NULL;
    if (Is(node->op, "null")) {
      if (next == num_in - extra) result = ERROR_MESSAGE("the body has more inputs than the node");
      for (int64_t k = 0; result && k < size; ++k) values[i][k] = ((const float*)in[next].data)[k];
      ++next;
    } else if (a && Is(node->op, "exp")) {
      for (int64_t k = 0; k < size; ++k) values[i][k] = expf(a[k]);
    } else if (a && Is(node->op, "log")) {
      for (int64_t k = 0; k < size; ++k) values[i][k] = logf(a[k]);
    } else if (a && b && Is(node->op, "elemwise_add")) {
      for (int64_t k = 0; k < size; ++k) values[i][k] = a[k] + b[k];
    } else {
      result = ERROR_MESSAGE("cannot run operator '%.*s'", node->op.size, node->op.at);
    }
  }
  if (result && num_out != graph.num_heads) result = ERROR_MESSAGE("%d outputs", num_out);
  for (int i = 0; result && i < num_out; ++i)
    for (int64_t k = 0; k < size; ++k) {
      float y = values[graph.heads[i][0]][k];
      for (int e = num_in - extra; e < num_in; ++e) y += ((const float*)in[e].data)[0];
      ((float*)out[i].data)[k] = y;
    }
  for (int i = 0; i < graph.num_nodes; ++i) free(values[i]);
  return result;
}
static int CreateBody(const Attributes* attributes, const Context* context, State** state) {
  (void)context;
  const char* json = Get(attributes, "subgraph_sym_json", NULL);
  if (!json) return ERROR_MESSAGE("there is no subgraph_sym_json");
  if (strlen(json) >= sizeof(*state)->text) return ERROR_MESSAGE("the subgraph is too large");
  *state = NewState();
  (*state)->forward = RunBody;
  (*state)->numbers[0] = atoi(Get(attributes, "__ext_extra_inputs__", "0"));
  strcpy((*state)->text, json);
  return SUCCESS;
}
const Operator custom_subgraph_op = {
    .name = "_custom_subgraph_op", .is_subgraph = 1, .create = CreateBody};

// Takes exp and log; with option reqFloat only those that are known to give float32.
static int IsChain(const Node* node, const Attributes* options) {
  if (!Is(node->op, "exp") && !Is(node->op, "log")) return 0;
  return !Get(options, "reqFloat", NULL) || Is(Attribute(node, "__ext_dtype__"), "[0]");
}
static int Chains(const char* json, int count, int* ids, const Attributes* options) {
  Graph graph;
  if (!Read(json, &graph)) return FAIL;
  if (graph.num_nodes != count) return ERROR_MESSAGE("%d nodes, not %d", graph.num_nodes, count);
  for (int i = 0; i < count; ++i)
    if (IsChain(&graph.nodes[i], options)) ids[i] = -1;
  return SUCCESS;
}
static int Sums(const char* json, int count, int* ids, const Attributes* options) {
  (void)options;
  Graph graph;
  if (!Read(json, &graph)) return FAIL;
  for (int i = 0; i < count && i < graph.num_nodes; ++i)
    if (Is(graph.nodes[i].op, "elemwise_add")) ids[i] = 7;  // one subgraph of all
  return SUCCESS;
}
static int SelectChains(const char* json, Selector* selector, const Attributes* options) {
  Graph graph;
  if (!Read(json, &graph)) return FAIL;
  for (int i = 0; i < graph.num_nodes; ++i)
    selector->nodes[i] = (char)IsChain(&graph.nodes[i], options);
  return SUCCESS;
}

// Rejects with reject=True, and with reqArgs if it is given no arguments. The new node gets
// myKey=myVal, its number of arguments, and of the first its name, size and first value.
static int ReviewBody(const char* json, int id, int* accept, const Attributes* options,
                      const Tensor* args, Strings arg_names, int num_args, int* count,
                      char keys[][64], char values[][64]) {
  (void)json, (void)id;
  if (!strcmp(Get(options, "reject", ""), "True")) return SUCCESS;
  if (Get(options, "reqArgs", NULL) && num_args == 0) return SUCCESS;
  *accept = 1;
  if (Get(options, "bare", NULL)) return SUCCESS;
  strcpy(keys[0], "myKey");
  strcpy(values[0], "myVal");
  strcpy(keys[1], "args");
  snprintf(values[1], 64, "%d", num_args);
  *count = 2;
  if (num_args > 0 && args[0].dtype == FLOAT32 && args[0].data) {
    strcpy(keys[2], "first_arg");
    snprintf(values[2], 64, "%.20s of %d: %g", arg_names[0], (int)SizeOf(&args[0]),
             ((const float*)args[0].data)[0]);
    *count = 3;
  }
  return SUCCESS;
}
const Partitioner library_partitioners[] = {
    {.name = "myProp",
     .count = 2,
     .strategies = {{.name = "chains",
                     .op = "_custom_subgraph_op",
                     .supported = Chains,
                     .review = ReviewBody},
                    {.name = "sums", .op = "_custom_subgraph_op", .supported = Sums}}},
    {.name = "mySelect",
     .count = 1,
     .strategies = {{.name = "selects",
                     .op = "_custom_subgraph_op",
                     .selector = SelectChains,
                     .review = ReviewBody}}},
    {.name = NULL}};

// Leaves the graph as it is. With option fail, fails and says what arguments it got. With option
// write, sets the first element of the first argument to 42.
static int LeaveGraph(const char* json, char** new_json, const Attributes* options,
                      const Tensor* args, Strings arg_names, int num_args,
                      const PassResource* resource) {
  (void)resource;
  if (Get(options, "fail", NULL))
    return ERROR_MESSAGE("told to fail by '%s' with %d arguments: %s = %g",
                         Get(options, "fail", ""), num_args, num_args > 0 ? arg_names[0] : "",
                         num_args > 0 ? (double)((const float*)args[0].data)[0] : 0);
  if (Get(options, "write", NULL) && num_args > 0) ((float*)args[0].data)[0] = 42;
  *new_json = malloc(strlen(json) + 1);
  strcpy(*new_json, json);
  return SUCCESS;
}

// Writes entries with the new numbers of their nodes, and node `last` after them unless it is -1.
static void WriteEntries(FILE* out, int entries[][3], int count, const int* number, int last) {
  fputs("[", out);
  for (int i = 0; i < count; ++i)
    fprintf(out, "%s[%d, %d, %d]", i ? ", " : "", number[entries[i][0]], entries[i][1],
            entries[i][2]);
  if (last >= 0) fprintf(out, "%s[%d, 0, 0]", count ? ", " : "", last);
  fputs("]", out);
}
// Gives each node of _custom_subgraph_op one more input, a new argument of shape {1} that is 1.
static int AddInput(const char* json, char** new_json, const Attributes* options,
                    const Tensor* args, Strings arg_names, int num_args,
                    const PassResource* resource) {
  (void)options, (void)args, (void)arg_names, (void)num_args;
  Graph graph;
  if (!Read(json, &graph)) return FAIL;
  size_t size = 0;
  FILE* out = open_memstream(new_json, &size);
  int number[MOST_NODES];
  int arguments[2 * MOST_NODES];
  int num_arguments = 0, total = 0;
  fputs("{\"nodes\": [", out);
  for (int i = 0; i < graph.num_nodes; ++i) {
    const Node* node = &graph.nodes[i];
    const int has_more = Is(node->op, "_custom_subgraph_op");
    if (has_more) {
      char name[128];
      const int64_t shape[] = {1};
      void* data = NULL;
      snprintf(name, sizeof name, "%.*s_input", node->name.size, node->name.at);
      resource->malloc(resource->alloc, shape, 1, "cpu", 0, FLOAT32, name, 1, &data);
      if (!data) {
        fclose(out);
        free(*new_json);
        *new_json = NULL;
        return ERROR_MESSAGE("the host has no memory for '%s'", name);
      }
      *(float*)data = 1;
      fprintf(out, "%s{\"op\": \"null\", \"name\": \"%s\", \"inputs\": []}", total ? ", " : "",
              name);
      arguments[num_arguments++] = total++;
    }
    if (Is(node->op, "null")) arguments[num_arguments++] = total;
    fprintf(out, "%s{\"op\": \"%.*s\", \"name\": \"%.*s\", \"attrs\": ", total ? ", " : "",
            node->op.size, node->op.at, node->name.size, node->name.at);
    const int has_attributes = node->attributes.size > 2;
    fprintf(out, "%.*s", has_attributes ? node->attributes.size - 1 : 1,
            has_attributes ? node->attributes.at : "{");
    if (has_more) fprintf(out, "%s\"__ext_extra_inputs__\": \"1\"", has_attributes ? ", " : "");
    fputs("}, \"inputs\": ", out);
    WriteEntries(out, graph.nodes[i].inputs, node->num_inputs, number, has_more ? total - 1 : -1);
    if (node->subgraphs.at)
      fprintf(out, ", \"subgraphs\": %.*s", node->subgraphs.size, node->subgraphs.at);
    fputs("}", out);
    number[i] = total++;
  }
  fputs("], \"arg_nodes\": [", out);
  for (int i = 0; i < num_arguments; ++i) fprintf(out, "%s%d", i ? ", " : "", arguments[i]);
  fputs("], \"heads\": ", out);
  WriteEntries(out, graph.heads, graph.num_heads, number, -1);
  fputs("}", out);
  fclose(out);
  return SUCCESS;
}
const Pass library_passes[] = {{.name = "myPass", .body = LeaveGraph},
                               {.name = "addInputPass", .body = AddInput},
                               {.name = NULL}};
