# Makes JSON Schemas for kubeconform of Kubernetes' own swagger.json.
# Output: an object of file name to schema. `definitions.json` has all types; each kind has a file
# that refers to its own: `<kind>-<first part of the group>-<version>.json`.

# Objects take the fields that they list and no others. A quantity is a number with a unit.
def strict:
  walk(
    if type != "object" then .
    elif has("properties") and has("type") and (has("additionalProperties") | not) then
      . + {additionalProperties: false}
    elif .format == "int-or-string" then {type: ["string", "integer"]}
    elif .["$ref"]? == "#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity" then
      {type: ["string", "number"], pattern: "^[0-9.]+(m|k|[KMGTPE]i?|[eE][0-9]+)?$"}
    else . end);

.definitions as $types
| {"definitions.json": {definitions: ($types | strict)}}
+ ([$types | to_entries[] | .key as $type
    | .value["x-kubernetes-group-version-kind"]? | select(length == 1)[0]
    | [.kind, (.group | split(".")[0] // empty), .version] | map(ascii_downcase) | join("-")
    | {key: "\(.).json", value: {"$ref": "definitions.json#/definitions/\($type)"}}]
  | from_entries)
