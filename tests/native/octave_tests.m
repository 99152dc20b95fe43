% Runs Octave's own tests of files that compute in single precision, and prints how many passed.
%
%   octave-cli octave_tests.m         % products and linear algebra
%   octave-cli octave_tests.m --all   % all folders that compute

own = fullfile(__octave_config_info__('octtestsdir'), 'libinterp/corefcn');
m = __octave_config_info__('fcnfiledir');
if any(strcmp(argv(), '--all'))
  folders = {'general', 'linear-algebra', 'ode', 'optimization', 'polynomial', 'set', 'signal', ...
             'sparse', 'specfun', 'special-matrix', 'statistics'};
  names = {'*'};
else
  folders = {'linear-algebra'};
  names = {'chol', 'det', 'dot', 'eig', 'gsvd', 'hess', 'inv', 'kron', 'lu', 'pinv', 'qr', ...
           'schur', 'svd', 'sylvester'};
end
files = [glob(fullfile(own, strcat(names, '.cc-tst'))); glob(fullfile(m, folders, '*.m'))];
nowhere = fopen('/dev/null', 'w');
for place = 1:numel(files)
  text = fileread(files{place});
  if ! isempty(strfind(text, 'single')) && ! isempty(strfind(text, '%!'))
    [passed, all] = test(files{place}, 'quiet', nowhere);
    printf('%s: %d of %d passed\n', files{place}, passed, all);
  end
end
