package fleet

// AskBuiltIns is for the tests outside the package.
var AskBuiltIns = (*Fleet).askBuiltIns
