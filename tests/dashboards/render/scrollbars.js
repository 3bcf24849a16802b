// The package exports its component under two names; the bundler needs one.
const found = require('./node_modules/react-custom-scrollbars-2');
module.exports = found.default || found.Scrollbars;
